"""Commands `interp prune heads` and `verify`: smaller checkpoints, and their statements checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from interp.causal.checkpoint.saving import N_RANDOM, SEARCHED, Saving
from interp.cli.making import GAME, command
from interp.cli.name_types import MODEL_NAME
from interp.cli.pruning import made_curves, searched_curves
from interp.cli.run import Run
from interp.cli.vocabulary import ABOVE_0, FROM_0, FROM_1, FROM_2, Spelling
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.causal.checkpoint.save import SavedCheckpoint
    from interp.causal.pruning.result import PruningCurve
    from interp.causal.task import Task
    from interp.model.model import Model


def _check(run: Run) -> None:
    from interp.causal.comparison.questions import require_methods

    asked = run.values["methods"]
    require_methods(name for name in asked if name not in ("greedy", *SEARCHED))
    names = ("save", "keep", "gates", "equal", "form", "repair", "rounds", "repair_rate")
    saving = Saving(*(run.values[name] for name in names))
    for name, spelling in (("order", "--set order"), ("counts", "--set counts")):
        if saving.folder is not None and run.stated(name):
            raise OptionError(f"{spelling} is of a curve; with --save one number of heads is kept")
    saving.check(len(run.sources), asked, run.values["kind"], run.values["heads"])


@command(
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    options={
        "methods": Spelling(default="aumann_shapley"),
        "counts": Spelling(type=FROM_2, metavar="N"),
        "tolerance": Spelling(type=click.FloatRange(min=0)),
        "repair": Spelling(type=FROM_0, metavar="STEPS"),
        "rounds": Spelling(type=FROM_1, metavar="N"),
        "repair_rate": Spelling(type=ABOVE_0, metavar="X"),
    },
    check=_check,
    example="interp prune bundled:induction --method ablation --keep 8 --save smaller",
)
def heads(
    run: Run,
    model: Model,
    task: Task,
    methods: list[str],
    *,
    order: Literal["least-first", "most-first"] = "least-first",
    n_random: int = 20,
    counts: int | None = None,
    save: Path | None = None,
    keep: int | None = None,
    gates: Path | None = None,
    equal: bool = False,
    form: Literal["auto", "smaller", "zeroed", "compact"] = "auto",
    repair: int = 0,
    rounds: int = 1,
    repair_rate: float | None = None,
    progress: Any = None,
    **game: Any,
) -> list[PruningCurve] | SavedCheckpoint:
    """Remove heads of each MODEL one after another, the least important first.

    With a good ranking the task stays intact for long. Compare with the band of random orders,
    which comes with every curve. Prompts used for the ranking bias the result in its favour, so
    heads are also ranked on one half of the prompts and judged on the other; that number is printed
    first.

    With --save, a checkpoint without some heads is written instead. Heads are chosen on one half of
    the prompts, and the certificate states the task before and after on the other half, beside
    random removals; `interp prune verify DIR` computes it again.

    Args:
        methods: the ranking: an importance as in `interp importance`; greedy, which evaluates every
            remaining head after each removal; gates, learned as in `interp importance gates`; or
            pairs, from the effects of all pairs. Several are separated by commas; repeatable. With
            gates or pairs, all orders are found on half of the prompts and measured on the other.
        order: heads that are removed first.
        n_random: number of random orders, for the band; with --save of random removals, beside
            which the certificate states the task, by default 50.
        counts: number of counts to evaluate; by default up to 24, and for random orders of more
            heads 6.
        save: write a checkpoint without some heads, which loads without interp, with a certificate.
            The heads to remove are those of --heads, those that --method ranks below the first
            --keep, or those that --gates closes.
        keep: with --save: number of heads to keep.
        gates: with --save: gates.json of `interp importance gates`.
        equal: with --keep: equally many heads in every layer, and in every kv group that is kept,
            so that the form smaller applies. Whole groups or single heads of every group go,
            whichever keeps the larger scores.
        form: with --save: smaller has fewer heads in its config; zeroed has full size; compact is
            smaller layer by layer, with a modelling file that must be trusted. auto is smaller
            where the config can express it, otherwise zeroed.
        repair: with --save: steps of training towards the original's outputs, on prompts that are
            not judged.
        rounds: with --keep and repair: remove heads in N rounds, each ranked and repaired anew.
        repair_rate: learning rate of the repair (default 3e-4).
    """
    from interp.causal.methods import importances

    if save is not None:
        saving = Saving(save, keep, gates, equal, form, repair, rounds, repair_rate)
        spec = {name: run.values[name] for name in ("measure", "n", "seed", "max_length")}
        spec |= {"source": run.values["task"]}
        n_removals = n_random if run.stated("n_random") else N_RANDOM
        return saving.write(model, task, methods, game, spec, run.sources[0], progress, n_removals)
    options: Any = game | {"n_random": n_random, "steps": counts, "progress": progress}
    if SEARCHED & {*methods}:
        return searched_curves(run, model, task, methods, order, **options)
    scored = [name for name in methods if name != "greedy"]
    importance_by_method = (
        importances(model, task, scored, progress=progress, **game) if scored else {}
    )
    run.tables += [scores.table for scores in importance_by_method.values()]
    rankings = {name: importance_by_method.get(name) for name in methods}
    return made_curves(run, model, task, rankings, order=order, **options)


def _holds(run: Run) -> int:
    [(_, [result])] = run.results
    return int(not result.holds)


verify = command(
    "interp.causal.checkpoint.verify:verify_certificate",
    over="nothing",
    arguments=("folder",),
    omit=("tasks",),
    options={
        "folder": Spelling(type=click.Path(exists=True, file_okay=False), metavar="DIR"),
        "original": Spelling(("--against",), MODEL_NAME, "MODEL"),
        "trust_remote_code": Spelling(
            ("--trust-remote-code",),
            click.BOOL,
            help="Run the modelling file of a compact checkpoint, and tasks that are programs.",
        ),
    },
    out=None,
    after=_holds,
    help="Files, weights, sizes, outputs, and the task before, after and under random removals are "
    "compared; what differs is listed, and what cannot be computed again is named. The exit code "
    "is 1 if something differs, or if no task could be computed again.",
    text="interp.report.printed.tables:plain_text",
    example="interp prune verify smaller --against models/mine",
)
