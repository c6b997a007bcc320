"""`interp circuit`: the heads and edges that do a task, found by one method and evaluated."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.commands.each import each_model
from interp.commands.loading import Loading, import_first, loading_options, named
from interp.commands.progress import Voice
from interp.errors import OptionError, UnknownName

if TYPE_CHECKING:
    from interp.circuit.edge_evaluation import EdgeEvaluation
    from interp.circuit.evaluation import Evaluation
    from interp.circuit.result import Circuit
    from interp.model.model import Model

ABLATIONS = ("corrupted", "zero", "mean-batch", "mean-position", "uniform-attention")


@click.command(epilog="Example: interp circuit induction bundled:induction -o out")
@click.argument("task", metavar="TASK")
@click.argument("sources", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--method", default="screen_verify", show_default=True, metavar="NAME[:OPTION=VALUE,...]",
    help="How the circuit is found: a file of the room interp/discovery, as below.",
)  # fmt: skip
@click.option("--level", default="head", show_default=True, type=click.Choice(["head", "edge"]))
@click.option("-n", default=64, show_default=True, type=click.IntRange(4), help="Pairs of prompts.")
@click.option("--ablation", default="corrupted", show_default=True, type=click.Choice(ABLATIONS),
              help="What replaces heads outside the circuit when it is evaluated.")  # fmt: skip
@click.option(
    "--truth", metavar="NAME",
    help="A published circuit of this model to compare with: a file of circuits/ by name, or a "
    ".toml of your own.",
)  # fmt: skip
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1), help="Nodes to print."
)
@click.option("--random", "n_random", default=20, show_default=True, type=click.IntRange(2),
              metavar="N", help="Random orders of heads beside.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Of prompts, methods and random orders.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="DIR",
    help="Write circuit.json, .toml, .graphml, .dot, .mmd, nodes.csv, evaluation.csv and a page "
    "for each model here; a broken-off evaluation goes on from the last finished forward.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes.")
@loading_options
def circuit(
    task: str,
    sources: tuple[str, ...],
    method: str,
    level: str,
    n: int,
    ablation: str,
    truth: str | None,
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
    Tasks: induction (random tokens), ioi, greater_than, subject_verb.
    Methods: screen_verify (gradients choose, real forwards measure, then
    backups), exact_patching, attribution_patching, integrated_patching, gim;
    codes sees what varies with the contrast and not what matters: read its
    controls. Only the last four and exact_patching score edges.
    """  # fmt: skip
    from interp.catalogue import discoveries
    from interp.circuit.tasks import TASKS

    if task not in TASKS:
        raise UnknownName("contrast task", task, TASKS)
    name, options = _options(method)
    if name not in discoveries():
        raise UnknownName("method to find a circuit", name, discoveries())
    if truth is not None:
        from interp.circuit.published import published

        against = published(truth)
    loading.require_device()
    import_first(imports)
    context = click.get_current_context()
    voice = Voice(quiet=quiet, debug=bool(context.meta.get("interp.debug")))
    if out is not None:
        from interp.store import Store

        Store(out).prepare()

    def work(source: str, model_name: str) -> None:
        with voice.bars(model_name) as tell:
            tell("loading", 0, 1)
            model = loading.load(source, model_name)
            tell("loading", 1, 1)
            if truth is not None:
                against.require(model)
            found, measured = _found(model, task, name, level, n, seed, options)(
                ablation, n_random, None if out is None else out / "ledger", tell
            )
            edges = _edges(model, found, task, n, seed) if found.edges else None
        told = None if truth is None else against.compared(found)
        click.echo(_printed(found, measured, top, truth, told, edges))
        if out is not None:
            folder = out / (re.sub(r"[^A-Za-z0-9._-]+", "-", model_name).strip("-.") or "model")
            write(
                found,
                measured,
                edges,
                folder,
                shlex.join(["interp", *context.meta["interp.command"]]),
            )
            voice.note(f"{folder}: circuit.json, circuit.html and others")

    try:
        failed = each_model(named(sources), voice, work)
    except KeyboardInterrupt:
        voice.error("interrupted; with --out the evaluation goes on")
        context.exit(130)
    context.exit(int(bool(failed)))


def _options(method: str) -> tuple[str, dict[str, str]]:
    name, _, rest = method.partition(":")
    given = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"{method!r}: write options as {name}:option=value")
        given[option] = value
    return name, given


def _found(
    model: Model, task: str, name: str, level: str, n: int, seed: int, given: dict[str, str]
) -> Any:
    from interp.catalogue import finder
    from interp.circuit.evaluation import evaluate
    from interp.circuit.find import find_circuit
    from interp.circuit.tasks import make_contrast
    from interp.model.check import check_model

    check_model(model).require()
    method = finder(name)
    options: dict[str, Any] = {}
    for option, value in given.items():
        if option not in method.options:
            raise UnknownName(f"option of {name}", option, method.options or ["(none)"])
        options[option] = method.options[option].parse(value)
    if "seed" in method.options:
        options.setdefault("seed", seed)
    found = find_circuit(model, make_contrast(model, task, n=n, seed=seed), name, level, **options)  # type: ignore[arg-type]
    fresh = make_contrast(model, task, n=n, seed=seed + 1)

    def measure(ablation: str, n_random: int, ledger: Path | None, tell: Any) -> Any:
        measured = evaluate(
            model, found, fresh, ablation=ablation, n_random=n_random, seed=seed, ledger=ledger,
            progress=tell,
        )  # fmt: skip
        return found, measured

    return measure


def _edges(model: Model, found: Circuit, task: str, n: int, seed: int) -> EdgeEvaluation | str:
    """The first edges alone, by real forwards; or why that cannot be."""
    from interp.circuit.edge_evaluation import evaluate_edges
    from interp.circuit.tasks import make_contrast

    try:
        return evaluate_edges(model, found, make_contrast(model, task, n=n, seed=seed + 1))
    except OptionError as error:  # codes scores pairs of heads, which are no edges of the graph
        return f"not evaluated: {error}"


def _printed(
    found: Circuit,
    measured: Evaluation,
    top: int,
    truth: str | None,
    told: dict[str, float] | None,
    edges: EdgeEvaluation | str | None,
) -> str:
    lines = [found.model, f"  {found.task}, {found.method}, {found.level}s: score ({found.unit})"]
    for name in found.ranking[:top]:
        at = found.nodes.index(name)
        sem = "" if found.sem[at] != found.sem[at] else f" ± {found.sem[at]:.2g}"
        lines.append(f"    {name:<7} {found.score[at]:.4g}{sem}")
    low, high = measured.interval()
    drawn = measured.random_cmd
    lines += [
        f"  on {measured.per_prompt.shape[1]} other pairs, others {measured.ablation}: CMD"
        f" {measured.cmd:.3f} [{low:.3f}, {high:.3f}] (0 is best), random orders"
        f" {drawn.mean():.3f} [{drawn.min():.3f}, {drawn.max():.3f}]",
        f"  the first {measured.chosen} heads: completeness {measured.completeness:.2f}, not needed"
        f" {' '.join(measured.unneeded) or 'none'}",
        *(f"  note: {note}" for note in found.notes),
    ]
    if edges is not None:
        lines.append(f"  edges: {edges}")
    if told is not None:
        lines.insert(
            -len(found.notes) or len(lines),
            f"  {truth}: AUROC {told['auroc']:.3f} [{told['low']:.3f}, {told['high']:.3f}];"
            f" {told['found']:.0f} of its {told['of']:.0f} heads among the first as many",
        )
    return "\n".join(lines) + "\n"


def write(
    found: Circuit,
    measured: Evaluation,
    edges: EdgeEvaluation | str | None,
    folder: Path,
    command: str,
) -> None:
    """All forms of a circuit and its evaluation, each file whole or not at all."""
    import pandas as pd

    from interp.files import write_atomically
    from interp.page import html_table, page, text

    found.to_json(folder / "circuit.json")
    found.to_toml(folder / "circuit.toml")
    found.to_graphml(folder / "circuit.graphml")
    found.to_dot(folder / "circuit.dot")
    found.to_mermaid(folder / "circuit.mmd")
    curve = measured.to_pandas()
    for name, frame in (("nodes", found.to_pandas()), ("evaluation", curve)):
        write_atomically(folder / f"{name}.csv", frame.to_csv(index=False).encode())
    parts = [
        ("Evaluation", f"<p>{text(measured)}</p>{html_table(curve)}"),
        ("Nodes", html_table(found.to_pandas())),
        *(
            (f"Table: {name}", html_table(pd.DataFrame(rows)))
            for name, rows in found.tables.items()
        ),
        ("Notes", "".join(f"<p>{text(note)}</p>" for note in found.notes) or "<p>none</p>"),
    ]
    if found.edges:
        parts.insert(2, ("Edges", html_table(found.top(100).edges_to_pandas())))
        shown = f"<p>{text(edges)}</p>"
        if not isinstance(edges, str) and edges is not None:
            shown += html_table(edges.to_pandas())
        parts.insert(2, ("Evaluation of edges", shown))
    made = dict(found.made) | {"command": command}
    title = f"{found.task} in {found.model}"
    write_atomically(
        folder / "circuit.html", page(title, found.plot(), parts, made, file_name="circuit")
    )
