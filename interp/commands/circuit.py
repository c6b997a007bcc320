"""`interp circuit`: the heads and edges that do a task, found by one method and evaluated."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.commands.each import each_model
from interp.commands.loading import Loading, import_first, loading_options, named
from interp.commands.progress import Voice
from interp.commands.written import own_folder
from interp.errors import OptionError, UnknownName

if TYPE_CHECKING:
    from interp.circuit.contrast import ContrastTask
    from interp.circuit.edge_evaluation import EdgeEvaluation
    from interp.circuit.evaluation import Evaluation
    from interp.circuit.published import Published
    from interp.circuit.result import Circuit
    from interp.model.model import Model

KEPT = {
    True: "the same command goes on from what is finished",
    False: "nothing is kept without --out, with which the same command goes on",
}
ABLATIONS = ("corrupted", "zero", "mean-batch", "mean-position", "uniform-attention")


def _listed(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from interp.circuit.listing import listing

        click.echo(listing())
        context.exit()


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
    ".toml of your own, also one that this command wrote.",
)  # fmt: skip
@click.option(
    "--circuit", "given", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Evaluate this circuit, a circuit.toml or .json of before, in place of finding one.",
)  # fmt: skip
@click.option("--same-templates", is_flag=True,
              help="Evaluate on the templates it was found on; others are held out.")  # fmt: skip
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1), help="Nodes to print."
)
@click.option("--random", "n_random", default=20, show_default=True, type=click.IntRange(2),
              metavar="N", help="Random orders of heads beside.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Of prompts, methods and random orders.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="DIR",
    help="Write circuit.json, .toml, .graphml, .dot, .mmd, .svg, nodes.csv, evaluation.csv, "
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
    "answer": ..., "wrong": ...}. Those of several templates hold some of them
    out: a circuit is found on some and measured on others, as on other lines
    of a file. `interp circuit --list` has them all.
    Methods: screen_verify (gradients choose, real forwards measure, then
    backups), exact_patching, attribution_patching, integrated_patching, gim;
    svd_trace follows who made heads attend, and changes nothing; codes sees
    what varies with the contrast and not what matters: read its controls.
    --list says which of them score edges.
    """  # fmt: skip
    from interp.circuit.tasks import known_task, split_templates

    task = known_task(task)
    name, options = _options(method)
    split_templates(task, seed)  # a file that cannot be read is told before a model is loaded
    against: Published | None = None
    if truth is not None:
        from interp.circuit.published import published

        against = published(truth)
    start = Plan(task, n, seed, same_templates)
    loading.require_device()
    import_first(imports)
    context = click.get_current_context()
    voice = Voice(quiet=quiet, debug=bool(context.meta.get("interp.debug")))
    if out is not None:
        from interp.store import Store

        Store(out).prepare()

    from interp.circuit.evaluation import evaluate
    from interp.circuit.folder import write
    from interp.model.check import check_model

    ledger = None if out is None else out / "ledger"

    def work(source: str, model_name: str) -> None:
        with voice.bars(model_name) as tell:
            tell("loading", 0, 1)
            model = loading.load(source, model_name)
            tell("loading", 1, 1)
            if against is not None:
                against.require(model)
            check_model(model).require()
            found = (
                _found(model, start, name, level, options, ledger=ledger, progress=tell)
                if given is None
                else _read(given, model, task)
            )
            plan = start.after(found)
            fresh = plan.fresh(model)
            measured = evaluate(
                model, found, fresh, ablation=ablation, n_random=n_random, seed=seed,
                ledger=ledger, progress=tell,
            )  # fmt: skip
            edges = None
            if found.edges:
                edges = _edges(model, found, fresh, ledger=ledger, progress=tell)
            doubt = _doubt(model, fresh)
        told = None if against is None else against.compared(found)
        click.echo(_printed(found, measured, top, truth, told, edges, plan) + doubt)
        if out is not None:
            folder = own_folder(out, model_name, "circuit.json", _of, _of(found.to_dict()))
            line = shlex.join(["interp", *context.meta["interp.command"]])
            write(
                found, measured, edges, folder, command=line, held_out=plan.told(len(fresh)),
                against=against,
            )  # fmt: skip
            voice.note(f"{folder}: circuit.toml, circuit.html and others")

    try:
        failed = each_model(named(sources), voice, work)
    except KeyboardInterrupt:
        voice.error("interrupted; " + KEPT[out is not None])
        context.exit(130)
    context.exit(int(bool(failed)))


def _of(told: dict[str, Any]) -> tuple[str, ...]:
    """What a circuit.json is of: weights, task, method and level."""
    made = str(told["made"].get("content_hash"))
    return made, told["task"], told["method"], told["level"]


def _options(method: str) -> tuple[str, dict[str, str]]:
    """The method's name and the options given; raises UnknownName before anything is loaded."""
    from interp.catalogue import discoveries

    name, _, rest = method.partition(":")
    name = name.replace("-", "_")
    given = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"{method!r}: write options as {name}:option=value")
        given[option] = value
    if name not in discoveries():
        raise UnknownName("method to find a circuit", name, discoveries())
    return name, given


@dataclass(frozen=True)
class Plan:
    """Which pairs a circuit is found on, and which it is measured on."""

    task: str
    n: int
    seed: int
    same_templates: bool
    used: tuple[int, ...] | None = None  # templates of a circuit that was found before

    @property
    def templates(self) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """Numbers of the templates of both; None where all are used, or there are none."""
        from interp.circuit.tasks import is_file, split_templates

        mine, held = split_templates(self.task, self.seed)
        if held and self.used is not None:
            every = sorted({*mine, *held})
            mine, held = self.used, tuple(i for i in every if i not in self.used)
        if is_file(self.task):  # there are no other pairs, whatever the templates are
            return mine, held
        return (None, None) if self.same_templates or not held else (mine, held)

    def after(self, found: Circuit) -> Plan:
        """The plan with the templates that a circuit says it was found on."""
        names = [str(name) for name in found.made.get("template_names") or ()]
        used = {int(at[0]) for name in names if (at := re.findall(r"\d+$", name))}
        return replace(self, used=tuple(sorted(used)) or None)

    def pairs(self, model: Model) -> ContrastTask:
        """Pairs to find it on."""
        from interp.circuit.tasks import make_contrast

        mine = self.templates[0]
        return make_contrast(model, self.task, n=self.n, seed=self.seed, templates=mine)

    def fresh(self, model: Model) -> ContrastTask:
        """Pairs to measure it on."""
        from interp.circuit.tasks import make_contrast

        held = self.templates[1]
        return make_contrast(model, self.task, n=self.n, seed=self.seed + 1, templates=held)

    def told(self, n: int) -> str:
        """The pairs that it is measured on, in words."""
        from interp.circuit.listing import one_line
        from interp.circuit.tasks import TASKS, is_file

        mine, held = self.templates
        if mine is None or held is None or is_file(self.task):
            return f"on {n} other pairs"
        texts = "; ".join(one_line(TASKS[self.task].templates[i]) for i in held)
        return (
            f"on {n} pairs of {len(held)} held-out of {len(mine) + len(held)} templates ({texts})"
        )


def _found(
    model: Model, plan: Plan, name: str, level: str, given: dict[str, str], **kept: Any
) -> Circuit:
    from interp.catalogue import finder
    from interp.circuit.find import find_circuit

    method = finder(name)
    options: dict[str, Any] = {}
    for option, value in given.items():
        if option not in method.options:
            raise UnknownName(f"option of {name}", option, method.options or ["(none)"])
        options[option] = method.options[option].parse(value)
    if "seed" in method.options:
        options.setdefault("seed", plan.seed)
    pairs = plan.pairs(model)
    return find_circuit(model, pairs, name, level, **kept, **options)  # type: ignore[arg-type]


def _read(path: Path, model: Model, task: str) -> Circuit:
    """A circuit of before, if it is of this model and task."""
    from interp.circuit.result import Circuit
    from interp.circuit.tasks import is_file

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


def _edges(model: Model, found: Circuit, fresh: ContrastTask, **kept: Any) -> EdgeEvaluation | str:
    """The first edges alone, by real forwards; or why that cannot be."""
    from interp.circuit.edge_evaluation import evaluate_edges

    try:
        return evaluate_edges(model, found, fresh, **kept)
    except OptionError as error:  # codes scores pairs of heads, which are no edges of the graph
        return f"not evaluated: {error}"


def _two(x: float) -> str:
    """Two places, and no sign on nothing."""
    return f"{round(float(x), 2) + 0.0:.2f}"


def _printed(
    found: Circuit,
    measured: Evaluation,
    top: int,
    truth: str | None,
    told: dict[str, float] | None,
    edges: EdgeEvaluation | str | None,
    plan: Plan,
) -> str:
    lines = [found.model, f"  {found.task}, {found.method}, {found.level}s: score ({found.unit})"]
    for name in found.ranking[:top]:
        at = found.nodes.index(name)
        sem = "" if found.sem[at] != found.sem[at] else f" ± {found.sem[at]:.2g}"
        lines.append(f"    {name:<7} {found.score[at]:.4g}{sem}")
    low, high = measured.interval()
    below, above = measured.interval("cpr")
    drawn, size, shaped = measured.random_cmd, measured.chosen, measured.shaped_faithfulness
    alone, beside = _two(measured.chosen_faithfulness), _two(shaped.mean())
    lines += [
        f"  {plan.told(measured.per_prompt.shape[1])}, others {measured.ablation}: CMD"
        f" {measured.cmd:.3f} [{low:.3f}, {high:.3f}] (0 is best), random orders"
        f" {drawn.mean():.3f} [{drawn.min():.3f}, {drawn.max():.3f}]; CPR {measured.cpr:.3f}"
        f" [{below:.3f}, {above:.3f}]",
        f"  the first {size} heads: faithfulness {alone}, random circuits with as many in each"
        f" layer {beside} [{_two(shaped.min())}, {_two(shaped.max())}]; completeness"
        f" {measured.completeness:.2f}, not needed {' '.join(measured.unneeded) or 'none'}",
    ]
    if measured.stability is not None:
        mean, least, most = measured.stability
        drawn_anew = next(row["drawn"] for row in found.tables["stability"])
        lines.append(
            f"  the first {size} heads when {drawn_anew} are drawn anew: Jaccard {mean:.2f}"
            f" [{least:.2f}, {most:.2f}]"
        )
    if measured.truth:
        known = measured.against_truth()
        lines.append(
            f"  built in {' '.join(measured.truth)}: AUROC {known['auroc']:.3f}"
            f" [{known['low']:.3f}, {known['high']:.3f}]"
        )
    if told is not None:
        lines.append(
            f"  {truth}: AUROC {told['auroc']:.3f} [{told['low']:.3f}, {told['high']:.3f}];"
            f" {told['found']:.0f} of its {told['of']:.0f} heads among the first as many"
        )
    lines += [f"  note: {note}" for note in found.notes]
    if edges is not None:
        told_of_edges = edges if isinstance(edges, str) else edges.told()
        lines.append(f"  edges: {told_of_edges.replace('; built in', chr(10) + '    built in')}")
    return "\n".join(lines) + "\n"
