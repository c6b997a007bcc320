"""Command `interp circuit`: heads and edges that perform a task, found and evaluated."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.beforehand import beforehand
from interp.cli.circuit_evaluation import DEFAULT, evaluated, with_set
from interp.cli.circuit_files import require_task_files, step_folder, stored_circuit
from interp.cli.each import each_model
from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.name_types import CIRCUIT_METHOD_NAME, note_left_out
from interp.cli.progress import Voice
from interp.cli.reference import reference_option, reference_prompts, require_reference
from interp.cli.shared_options import models_argument
from interp.cli.value_types import OUT_FOLDER
from interp.cli.written import own_folder
from interp.core.errors import OptionError
from interp.core.protocols import Progress

if TYPE_CHECKING:
    from interp.circuits.declaration import Discovery
    from interp.circuits.plan import Plan
    from interp.circuits.published import Published
    from interp.circuits.result import Circuit
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
        from interp.core.registry import CIRCUIT_METHODS

        click.echo(circuit_listing())
        note_left_out(CIRCUIT_METHODS)
        context.exit()


SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command(epilog="Example: interp circuit bundled:induction --task induction -o out")
@models_argument
@click.option("--task", default="induction", show_default=True, metavar="NAME|FILE",
    help="The task: a name of --list, or a .jsonl or .py file.")  # fmt: skip
@click.option(
    "--method", default=DEFAULT, show_default=True, type=CIRCUIT_METHOD_NAME,
    metavar="NAME[:OPTION=VALUE,...]",
    help="Method that finds the circuit: one listed above, or a .py file that declares one.",
)  # fmt: skip
@click.option("--units", "level", type=click.Choice(["head", "edge"]),
              help="Units of the circuit: nodes, or edges between them too.  [default: edge for "
                   "verified_edges, head for other methods]")  # fmt: skip
@click.option("--faithful", default=0.8, show_default=True, metavar="SHARE", type=SHARE,
              help="Find the smallest set that keeps this share of the behaviour.")  # fmt: skip
@click.option("--size", type=click.IntRange(1), metavar="N",
              help="Take the first N nodes as the set, instead of a share.")  # fmt: skip
@click.option("--evaluations", "budget", type=click.IntRange(1), metavar="N",
              help="Maximum number of forward passes of the search (verified_edges, acdc).  "
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
@click.option("--random", "n_random", default=10, show_default=True, type=click.IntRange(2),
              metavar="N",
              help="Number of random orders of heads, and of random sets.")  # fmt: skip
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
def find(
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
    """Find the circuit of each MODEL for a task, and evaluate it on held-out pairs.

    What is found is printed and written before it is evaluated; Ctrl-C keeps it.

    \b
    Tasks: induction (random tokens), ioi, greater_than, subject_verb,
    docstring; planted:NAME on the model planted:NAME, whose circuit is known;
    FILE.jsonl: user-supplied pairs, lines of {"prompt": ..., "corrupted": ...,
    "answer": ..., "wrong": ...}; FILE.toml: templates with slots, see
    `interp circuit pairs`; FILE.py: a function task(model) that returns a Task with
    corrupted prompts and a metric, or a ContrastTask. Tasks with several
    templates hold some of them out: a circuit is found on some and evaluated
    on the others; for a file, on other pairs of the file.
    `interp circuit --list` lists all tasks.
    Methods: verified_edges (nodes and edges measured by patching, within a
    budget of forward passes), screen_verify (heads, with a
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

    from interp.circuits.folder import write_evaluation, write_found
    from interp.circuits.plan import Plan
    from interp.circuits.printed import evaluation_lines, found_lines

    stored: dict[str, Path | None] = {}  # by model, where what was found is

    def work(source: str, model_name: str) -> None:
        with voice.bars(model_name) as bars:
            tell = beforehand(bars, voice.note, model_name)
            model = _loaded(source, model_name, loading, against, tell)
            start, no_set = Plan(task, n, seed, same_templates), "the circuit was found without one"
            if given is None:
                kept: dict[str, Any] = {"ledger": ledger, "progress": tell}
                found = _found(model, start, way, level, options, **kept)
                found, no_set = with_set(model, found, start, faithful, size or 0, **kept)
            else:
                found = stored_circuit(given, model, task)
        click.echo(found_lines(found, top, against=against, called=truth or ""), nl=False)
        folder = None
        if out is not None:
            folder = own_folder(out, model_name, "circuit.json", _of, _of(found.to_dict()))
            write_found(found, folder)
        stored[model_name] = folder
        with voice.bars(model_name) as bars:
            tell = beforehand(bars, voice.note, model_name)
            measured, parts, doubt = evaluated(
                model, found, start, no_set, top=top, maps=maps, ablation=ablation,
                reference=reference_prompts(reference, model), n_random=n_random, ledger=ledger,
                progress=tell,
            )  # fmt: skip
        click.echo(evaluation_lines(found, measured, **parts) + doubt)
        if folder is not None:
            line = shlex.join(["interp", *context.meta["interp.command"]])
            write_evaluation(found, measured, folder, command=line, against=against, **parts)
            voice.note(f"{folder}: circuit.toml, circuit.html and others")
        del stored[model_name]

    try:
        failed = each_model(source_labels(sources), voice, work)
    except KeyboardInterrupt:
        voice.error(_interrupted(list(stored.values()), out is not None))
        context.exit(130)
    context.exit(int(bool(failed)))


def _loaded(
    source: str, name: str, loading: Loading, against: Published | None, tell: Progress
) -> Model:
    """Load a model, and raise unless it can be read and is that of the published circuit."""
    from interp.model.check import check_model

    tell("loading", 0, 1)
    model = loading.load(source, name)
    tell("loading", 1, 1)
    if against is not None:
        against.require(model)
    check_model(model).require()
    return model


def _interrupted(stored: list[Path | None], resumes: bool) -> str:
    """Say where the circuits are that were found but not evaluated."""
    found = [f"in {path}" for path in stored if path is not None]
    if stored and not found:
        found = ["printed above"]
    told = f" in the evaluation: what was found is {' and '.join(found)}" if found else ""
    return f"interrupted{told}; {KEPT[resumes]}"


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
    from interp.circuits.find import find_method

    found, options = find_method(text)
    has = found.options
    if budget is not None and "budget" not in has:
        raise OptionError(
            f"{found.name} takes no --evaluations; omit it, or use verified_edges or acdc"
        )
    asked = {"faithful": faithful, "size": size, "budget": budget}
    more = {k: v for k, v in asked.items() if v is not None and k in has}
    return found, more | options


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
