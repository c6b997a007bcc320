"""Command `interp circuit`: heads and edges that perform a task, found and evaluated."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.circuit_files import require_task_files, step_folder, stored_circuit
from interp.cli.each import each_model
from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.name_types import CIRCUIT_METHOD_NAME, MODEL_NAME
from interp.cli.progress import Voice
from interp.cli.reference import reference_option, reference_prompts, require_reference
from interp.cli.value_types import OUT_FOLDER
from interp.cli.written import own_folder
from interp.cli.wrong_models import checked_sources
from interp.core.declaration import parse_name
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.registry import CIRCUIT_METHODS

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.declaration import Discovery
    from interp.circuits.edge_evaluation import EdgeEvaluation
    from interp.circuits.patched import Patched
    from interp.circuits.plan import Plan
    from interp.circuits.position_map import PatchingMap
    from interp.circuits.published import Published
    from interp.circuits.result import Circuit
    from interp.circuits.set_evaluation import SetEvaluation
    from interp.model.model import Model

KEPT = {
    True: "the same command resumes from the finished steps",
    False: "nothing is stored without --out, which allows the same command to resume",
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


GROUP = "Circuits"
SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command(epilog="Example: interp circuit induction bundled:induction -o out")
@click.argument("task", metavar="TASK")
@click.argument(
    "sources",
    nargs=-1,
    required=True,
    metavar="MODEL...",
    type=MODEL_NAME,
    callback=checked_sources,
)
@click.option(
    "--method", default="verified_edges", show_default=True, type=CIRCUIT_METHOD_NAME,
    metavar="NAME[:OPTION=VALUE,...]",
    help="Method that finds the circuit: one listed above, or a .py file that declares one.",
)  # fmt: skip
@click.option("--level", type=click.Choice(["head", "edge"]),
              help="Units of the circuit: nodes, or edges between them too.  [default: edge for "
                   "verified_edges, head for other methods]")  # fmt: skip
@click.option("--faithful", default=0.8, show_default=True, metavar="SHARE", type=SHARE,
              help="Find the smallest set that keeps this share of the behaviour.")  # fmt: skip
@click.option("--size", type=click.IntRange(1), metavar="N",
              help="Take the first N nodes as the set, instead of a share.")  # fmt: skip
@click.option("--budget", type=click.IntRange(1), metavar="PASSES",
              help="Forward passes of the search over all pairs (verified_edges, acdc).  "
                   "[default: as many as there are nodes; acdc: one per edge]")  # fmt: skip
@click.option(
    "-n", default=64, show_default=True, type=click.IntRange(4), help="Number of pairs of prompts."
)
@click.option("--ablation", default="corrupted", show_default=True, type=click.Choice(ABLATIONS),
              help="Replacement for heads outside the circuit in the evaluation.")  # fmt: skip
@reference_option("--ablation")
@click.option(
    "--truth", metavar="NAME",
    help="A published circuit of this model to compare with: the name of a file in circuits/, or "
        "a user-supplied .toml file, such as one that this command wrote.",
)  # fmt: skip
@click.option(
    "--circuit", "given", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Evaluate an existing circuit (circuit.toml or .json) instead of finding one.",
)  # fmt: skip
@click.option("--same-templates", is_flag=True,
              help="Evaluate on the templates of the search, not held-out ones.")  # fmt: skip
@click.option(
    "--top",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Number of nodes (and edges) to print, and to patch on held-out pairs.",
)
@click.option("--map", "maps", multiple=True, type=click.Choice(["stream", "attention", "mlp"]),
              help="Also patch this at one role (or position) of one layer at a time, on held-out "
                   "pairs, and print the map; may be given several times.")  # fmt: skip
@click.option("--random", "n_random", default=20, show_default=True, type=click.IntRange(2),
              metavar="N", help="Number of random orders of heads, as a baseline.")  # fmt: skip
@click.option(
    "--seed", default=0, show_default=True, help="Seed of prompts, methods and random orders."
)
@click.option(
    "-o", "--out", type=OUT_FOLDER, metavar="DIR",
    help="Write circuit.json, .toml, .graphml, .dot, .mmd, .svg, nodes.csv, edges.csv, "
    "set.csv, map_SITE.csv, patched.csv, evaluation.csv, "
    ".json, .svg and a page for each model to this folder; an interrupted run resumes, since "
    "finished steps are stored in DIR/kept.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_listed,
              help="Print tasks, methods and published circuits, and exit.")  # fmt: skip
@loading_options
def circuit(
    task: str,
    sources: tuple[str, ...],
    method: str,
    level: str | None,
    faithful: float,
    size: int | None,
    budget: int | None,
    n: int,
    ablation: str,
    reference: Path | None,
    truth: str | None,
    given: Path | None,
    same_templates: bool,
    top: int,
    maps: tuple[str, ...],
    n_random: int,
    seed: int,
    out: Path | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Find the circuit of each MODEL for a TASK, and evaluate it on held-out pairs.

    \b
    Tasks: induction (random tokens), ioi, greater_than, subject_verb,
    docstring; planted:NAME on the model planted:NAME, whose circuit is known;
    FILE.jsonl: user-supplied pairs, lines of {"prompt": ..., "corrupted": ...,
    "answer": ..., "wrong": ...}; FILE.toml: templates with slots, see
    `interp pairs`; FILE.py: a function task(model) that returns a Task with
    corrupted prompts and a metric, or a ContrastTask. Tasks with several
    templates hold some of them out: a circuit is found on some and evaluated
    on the others; for a file, on other pairs of the file.
    `interp circuit --list` lists all tasks.
    Methods: verified_edges (nodes and edges chosen by gradients and measured by
    patching, within a budget of forward passes), screen_verify (heads, with a
    search for backups among all pairs), exact_patching, attribution_patching,
    integrated_patching, gim_patching, relevance_patching; acdc removes edges
    one by one, edge_masks trains masks; svd_trace traces what makes heads
    attend, then patches the heads it finds; codes finds heads whose output
    varies with the contrast, not heads that are causally needed: check its
    controls, printed below the scores. --list shows which methods score edges.
    """  # fmt: skip
    require_reference(ablation, reference, "--ablation")
    require_task_files(task, given)
    against = _against(truth)
    from interp.circuits.tasks import known_task, split_templates

    task = known_task(task)
    way, options = _method(method, faithful, size, budget)
    split_templates(task, seed)  # an unreadable file is reported before a model is loaded
    loading.require_device()
    import_first(imports)
    context = click.get_current_context()
    voice = Voice(quiet=quiet, debug=bool(context.meta.get("interp.debug")))
    ledger = step_folder(out)

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
                found, no_set = _with_set(
                    model, found, start, faithful, size or 0, ledger=ledger, progress=tell
                )
            else:
                found, no_set = (
                    stored_circuit(given, model, task),
                    "the circuit was found without one",
                )
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
                "of_set": _set(model, found, fresh, no_set, seed, ledger=ledger, progress=tell),
                "edges": _edges(model, found, fresh, ledger=ledger, progress=tell),
                "against": against,
                "maps": _maps(model, fresh, maps, ledger=ledger, progress=tell),
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


def _of(told: dict[str, Any]) -> tuple[str, ...]:
    """Return weights, task, method and level of a circuit.json."""
    made = str(told["made"].get("content_hash"))
    return made, told["task"], told["method"], told["level"]


def _method(
    text: str, faithful: float, size: int | None, budget: int | None
) -> tuple[Discovery, dict[str, Any]]:
    """Return the method and its options; raise UnknownName before a model is loaded.

    Raises:
        OptionError: The method has no budget.
    """
    name, given = parse_name(text)
    if not name.endswith(".py"):
        name = name.replace("-", "_")
    found = CIRCUIT_METHODS.parse(name + text[len(name) :])
    options = {option: found.options[option] for option in given}
    has = found.declaration.options
    if budget is not None and "budget" not in has:
        raise OptionError(f"{name} has no budget; omit --budget, or use verified_edges or acdc")
    asked = {"faithful": faithful, "size": size, "budget": budget}
    more = {k: v for k, v in asked.items() if v is not None and k in has}
    return found.declaration, more | options


def _found(
    model: Model,
    plan: Plan,
    method: Discovery,
    level: str | None,
    options: dict[str, Any],
    **kept: Any,
) -> Circuit:
    from interp.circuits.find import find_circuit

    if "seed" in method.options:
        options = {"seed": plan.seed} | options
    pairs = plan.pairs(model)
    return find_circuit(model, pairs, method, level, **kept, **options)  # type: ignore[arg-type]


def _with_set(
    model: Model, found: Circuit, plan: Plan, faithful: float, size: int, **kept: Any
) -> tuple[Circuit, str]:
    """Mark the smallest set in a circuit of a method that has none, or return why there is none."""
    from interp.circuits.smallest import chosen_of, smallest_set

    if chosen_of(found) is not None:
        return found, ""
    try:
        pairs = plan.pairs(model)
        return smallest_set(model, found, pairs, faithful=faithful, size=size, **kept), ""
    except (OptionError, UnreadableAttention) as error:
        return found, str(error)


def _set(
    model: Model, found: Circuit, fresh: ContrastTask, why: str, seed: int, **kept: Any
) -> SetEvaluation | str:
    """Measure the smallest set on other pairs, or return the reason why that is impossible."""
    from interp.circuits.set_evaluation import evaluate_set
    from interp.circuits.smallest import chosen_of

    if chosen_of(found) is None:
        return why
    try:
        return evaluate_set(model, found, fresh, seed=seed, **kept)
    except (OptionError, UnreadableAttention) as error:
        return str(error)


def _maps(
    model: Model, fresh: ContrastTask, sites: tuple[str, ...], **kept: Any
) -> list[PatchingMap]:
    """Patch layers at the task's roles, or at positions where it names none."""
    from interp.circuits.position_map import patching_map

    by = "role" if any(fresh.roles) else "position"
    return [patching_map(model, fresh, site, by=by, **kept) for site in dict.fromkeys(sites)]


def _doubt(model: Model, fresh: ContrastTask) -> str:
    """Return a note if the evaluation pairs do not show the behaviour."""
    try:
        fresh.gap(model)
    except OptionError as error:
        return f"  note: on the evaluation pairs: {error}\n"
    return ""


def _patched(
    model: Model, found: Circuit, fresh: ContrastTask, top: int, **kept: Any
) -> Patched | str:
    """Patch the listed nodes on other pairs, or return the reason why that is impossible."""
    from interp.circuits.patched import patch_first

    try:
        return patch_first(model, found, fresh, top, **kept)
    except (
        OptionError,
        UnreadableAttention,
    ) as error:  # a model whose components do not add up to its residual stream
        return str(error)


def _edges(
    model: Model, found: Circuit, fresh: ContrastTask, **kept: Any
) -> EdgeEvaluation | str | None:
    """Patch the first edges alone, or return the reason; None if there are none."""
    from interp.circuits.edge_evaluation import evaluate_edges

    if not found.edges:
        return None
    try:
        return evaluate_edges(model, found, fresh, **kept)
    except OptionError as error:  # codes scores pairs of heads, which are not edges of the graph
        return f"not evaluated: {error}"
