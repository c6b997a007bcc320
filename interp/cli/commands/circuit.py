"""`interp circuit`: the heads and edges that do a task, found by one method and evaluated."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.each import each_model
from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.name_types import CIRCUIT_METHOD_NAME, MODEL_NAME
from interp.cli.progress import Voice
from interp.cli.reference import reference_option, reference_prompts, require_reference
from interp.cli.written import kept_folder, own_folder
from interp.core.declaration import parse_name
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.registry import CIRCUIT_METHODS

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.declaration import Discovery
    from interp.circuits.edge_evaluation import EdgeEvaluation
    from interp.circuits.patched import Patched
    from interp.circuits.plan import Plan
    from interp.circuits.published import Published
    from interp.circuits.result import Circuit
    from interp.model.model import Model

KEPT = {
    True: "the same command goes on from what is finished",
    False: "nothing is kept without --out, with which the same command goes on",
}
ABLATIONS = (
    "corrupted",
    "zero",
    "mean-batch",
    "mean-position",
    "mean-dataset",
    "uniform-attention",
)


def _listed(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from interp.circuits.listing import circuit_listing

        click.echo(circuit_listing())
        context.exit()


@click.command(epilog="Example: interp circuit induction bundled:induction -o out")
@click.argument("task", metavar="TASK")
@click.argument("sources", nargs=-1, required=True, metavar="MODEL...", type=MODEL_NAME)
@click.option(
    "--method", default="screen_verify", show_default=True, type=CIRCUIT_METHOD_NAME,
    metavar="NAME[:OPTION=VALUE,...]",
    help="How the circuit is found: a method as below, or a .py file that declares one.",
)  # fmt: skip
@click.option("--level", default="head", show_default=True, type=click.Choice(["head", "edge"]))
@click.option("-n", default=64, show_default=True, type=click.IntRange(4), help="Pairs of prompts.")
@click.option("--ablation", default="corrupted", show_default=True, type=click.Choice(ABLATIONS),
              help="What replaces heads outside the circuit when it is evaluated.")  # fmt: skip
@reference_option("--ablation")
@click.option(
    "--truth", metavar="NAME",
    help="A published circuit of this model to compare with: a file of circuits/ by name, or a "
    ".toml of your own, also one that this command wrote.",
)  # fmt: skip
@click.option(
    "--circuit", "given", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Evaluate this circuit, a circuit.toml or .json of before, in place of finding one.",
)  # fmt: skip
@click.option("--same-templates", is_flag=True,
              help="Evaluate on the templates it was found on; others are held out.")  # fmt: skip
@click.option(
    "--top",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Nodes (and edges) to print, and to patch on held-out pairs.",
)
@click.option("--random", "n_random", default=20, show_default=True, type=click.IntRange(2),
              metavar="N", help="Random orders of heads beside.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Of prompts, methods and random orders.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="DIR",
    help="Write circuit.json, .toml, .graphml, .dot, .mmd, .svg, nodes.csv, edges.csv, "
    "patched.csv, evaluation.csv, "
    ".json, .svg and a page for each model here; a broken-off run goes on where it was: what was "
    "found and measured by then is kept in DIR/ledger.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_listed,
              help="Print tasks, methods and published circuits, and stop.")  # fmt: skip
@loading_options
def circuit(
    task: str,
    sources: tuple[str, ...],
    method: str,
    level: str,
    n: int,
    ablation: str,
    reference: Path | None,
    truth: str | None,
    given: Path | None,
    same_templates: bool,
    top: int,
    n_random: int,
    seed: int,
    out: Path | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Find the circuit of each MODEL for a TASK, and measure it on pairs it was not found on.

    \b
    Tasks: induction (random tokens), ioi, greater_than, subject_verb,
    docstring; planted:NAME on the model planted:NAME, whose circuit is known;
    FILE.jsonl: pairs of your own, lines of {"prompt": ..., "corrupted": ...,
    "answer": ..., "wrong": ...}; FILE.py: a function task(model) that returns
    a Task with corrupted prompts and a metric of its own, or a ContrastTask.
    Those of several templates hold some of them out: a circuit is found on
    some and measured on others, as on other pairs of a file. `interp circuit
    --list` has them all.
    Methods: screen_verify (gradients choose, real forwards measure, then
    backups, in a column of their own), exact_patching, attribution_patching,
    integrated_patching, gim_patching; svd_trace follows what made heads attend, then
    patches what it found; codes finds heads whose output varies with the
    contrast, not heads that are causally needed: its controls are printed
    below the scores. --list says which of them score edges.
    """  # fmt: skip
    from interp.circuits.tasks import known_task, split_templates

    require_reference(ablation, reference, "--ablation")
    task = known_task(task)
    way, options = _method(method)
    split_templates(task, seed)  # a file that cannot be read is told before a model is loaded
    against = _against(truth)
    loading.require_device()
    import_first(imports)
    context = click.get_current_context()
    voice = Voice(quiet=quiet, debug=bool(context.meta.get("interp.debug")))
    ledger = _prepared(out)

    from interp.circuits.evaluation import evaluate
    from interp.circuits.folder import write_circuit
    from interp.circuits.plan import Plan
    from interp.circuits.printed import circuit_lines
    from interp.model.check import check_model

    def work(source: str, model_name: str) -> None:
        with voice.bars(model_name) as tell:
            tell("loading", 0, 1)
            model = loading.load(source, model_name)
            tell("loading", 1, 1)
            if against is not None:
                against.require(model)
            check_model(model).require()
            start = Plan(task, n, seed, same_templates)
            if given is None:
                found = _found(model, start, way, level, options, ledger=ledger, progress=tell)
            else:
                found = _read(given, model, task)
            plan = start.after(found)
            fresh = plan.fresh(model)
            measured = evaluate(
                model, found, fresh, ablation=ablation, n_random=n_random, seed=seed,
                found_on=plan.found_on(model, start), ledger=ledger, progress=tell,
                **reference_prompts(reference, model),
            )  # fmt: skip
            parts = {
                "held_out": plan.told(len(fresh), measured.seen),
                "patched": _patched(model, found, fresh, top, ledger=ledger, progress=tell),
                "edges": _edges(model, found, fresh, ledger=ledger, progress=tell),
                "against": against,
            }
            doubt = _doubt(model, fresh)
        click.echo(circuit_lines(found, measured, top, called=truth or "", **parts) + doubt)
        if out is not None:
            folder = own_folder(out, model_name, "circuit.json", _of, _of(found.to_dict()))
            line = shlex.join(["interp", *context.meta["interp.command"]])
            write_circuit(found, measured, folder, command=line, **parts)
            voice.note(f"{folder}: circuit.toml, circuit.html and others")

    try:
        failed = each_model(source_labels(sources), voice, work)
    except KeyboardInterrupt:
        voice.error("interrupted; " + KEPT[out is not None])
        context.exit(130)
    context.exit(int(bool(failed)))


def _against(truth: str | None) -> Published | None:
    from interp.circuits.published import published

    return None if truth is None else published(truth)


def _prepared(out: Path | None) -> Path | None:
    """The folder that keeps finished steps, in one that can be written."""
    if out is None:
        return None
    from interp.core.store import Store

    Store(out).prepare()
    return kept_folder(out)


def _of(told: dict[str, Any]) -> tuple[str, ...]:
    """Weights, task, method and level of a circuit.json."""
    made = str(told["made"].get("content_hash"))
    return made, told["task"], told["method"], told["level"]


def _method(text: str) -> tuple[Discovery, dict[str, Any]]:
    """The method and the options given; raises UnknownName before a model is loaded."""
    name, given = parse_name(text)
    if not name.endswith(".py"):
        name = name.replace("-", "_")
    found = CIRCUIT_METHODS.parse(name + text[len(name) :])
    return found.declaration, {option: found.options[option] for option in given}


def _found(
    model: Model, plan: Plan, method: Discovery, level: str, options: dict[str, Any], **kept: Any
) -> Circuit:
    from interp.circuits.find import find_circuit

    if "seed" in method.options:
        options = {"seed": plan.seed} | options
    pairs = plan.pairs(model)
    return find_circuit(model, pairs, method, level, **kept, **options)  # type: ignore[arg-type]


def _read(path: Path, model: Model, task: str) -> Circuit:
    """A circuit of before, if it is of this model and task."""
    from interp.circuits.result import Circuit
    from interp.circuits.tasks import is_file

    found = Circuit.from_json(path) if path.suffix == ".json" else Circuit.from_toml(path)
    found.require(model)
    name = Path(task).stem if is_file(task) else task
    if found.task != name:
        raise OptionError(f"{path} is a circuit for {found.task}, and not for {name}")
    return found


def _doubt(model: Model, fresh: ContrastTask) -> str:
    """What to say where the pairs that it is measured on do not show the behaviour."""
    try:
        fresh.gap(model)
    except OptionError as error:
        return f"  note: on the pairs it is measured on: {error}\n"
    return ""


def _patched(
    model: Model, found: Circuit, fresh: ContrastTask, top: int, **kept: Any
) -> Patched | str:
    """The listed nodes, patched on other pairs; or why that cannot be."""
    from interp.circuits.patched import patch_first

    try:
        return patch_first(model, found, fresh, top, **kept)
    except (
        OptionError,
        UnreadableAttention,
    ) as error:  # a model whose writers do not add up to its stream
        return str(error)


def _edges(
    model: Model, found: Circuit, fresh: ContrastTask, **kept: Any
) -> EdgeEvaluation | str | None:
    """The first edges alone, by real forwards; why that cannot be; None where there are none."""
    from interp.circuits.edge_evaluation import evaluate_edges

    if not found.edges:
        return None
    try:
        return evaluate_edges(model, found, fresh, **kept)
    except OptionError as error:  # codes scores pairs of heads, which are no edges of the graph
        return f"not evaluated: {error}"
