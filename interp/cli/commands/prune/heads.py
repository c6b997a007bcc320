"""Commands `interp prune heads` and `verify`: smaller checkpoints, and their statements checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.causal.checkpoint.saving import N_RANDOM, SEARCHED, Saving
from interp.cli.making import GAME, command
from interp.cli.name_types import MODEL_NAME
from interp.cli.run import Run
from interp.cli.vocabulary import FROM_0, FROM_1, FROM_2, Spelling
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.causal.checkpoint.save import SavedCheckpoint
    from interp.causal.importance import Importance
    from interp.causal.pruning.result import PruningCurve
    from interp.causal.task import Task
    from interp.model.model import Model


def _check(run: Run) -> None:
    from interp.causal.comparison.questions import require_methods

    asked = run.values["methods"]
    require_methods(name for name in asked if name not in ("greedy", *SEARCHED))
    names = ("save", "keep", "gates", "equal", "repair", "rounds")
    saving = Saving(*(run.values[name] for name in names))
    if saving.folder is not None and run.stated("counts"):
        raise OptionError("--set counts is of a curve; with --save one number of heads is kept")
    saving.check(len(run.sources), asked, run.values["kind"], run.values["heads"])


@command(
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    options={
        "methods": Spelling(default="aumann_shapley"),
        "counts": Spelling(type=FROM_2, metavar="N"),
        "repair": Spelling(type=FROM_0, metavar="STEPS"),
        "rounds": Spelling(type=FROM_1, metavar="N"),
    },
    check=_check,
    example="interp prune bundled:stories --method ablation --keep 16 --save smaller",
)
def heads(
    run: Run,
    model: Model,
    task: Task,
    methods: list[str],
    *,
    n_random: int = 20,
    counts: int | None = None,
    save: Path | None = None,
    keep: int | None = None,
    gates: Path | None = None,
    equal: bool = False,
    repair: int = 0,
    rounds: int = 1,
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
        repair: with --save: steps of training towards the original's outputs, on prompts that are
            not judged.
        rounds: with --keep and repair: remove heads in N rounds, each ranked and repaired anew.
    """
    from interp.causal.methods import importances

    if save is not None:
        saving = Saving(save, keep, gates, equal, repair, rounds)
        spec = {name: run.values[name] for name in ("measure", "n", "seed", "max_length")}
        spec |= {"source": run.values["task"]}
        n_removals = n_random if run.stated("n_random") else N_RANDOM
        return saving.write(model, task, methods, game, spec, run.sources[0], progress, n_removals)
    options: Any = game | {"n_random": n_random, "steps": counts, "progress": progress}
    if SEARCHED & {*methods}:
        return _searched_curves(run, model, task, methods, **options)
    scored = [name for name in methods if name != "greedy"]
    importance_by_method = (
        importances(model, task, scored, progress=progress, **game) if scored else {}
    )
    run.tables += [scores.table for scores in importance_by_method.values()]
    rankings = {name: importance_by_method.get(name) for name in methods}
    return _curves(run, model, task, rankings, **options)


def _curves(
    run: Run,
    model: Model,
    task: Task,
    rankings: Mapping[str, Importance | None],
    *,
    progress: Any,
    **options: Any,
) -> list[PruningCurve]:
    """Make and write a curve for each ranking (None: greedy)."""
    from interp.causal.pruning.prune import estimate_pruning, pruning_curve

    curves = []
    for name, ranking in rankings.items():
        how: Any = "greedy" if ranking is None else "one-shot"
        run.announce(estimate_pruning(model, task, ranking, how=how, **options))
        curves.append(
            pruning_curve(model, task, ranking, how=how, name=name, progress=progress, **options)
        )
    return _written(run, curves)


def _searched_curves(
    run: Run, model: Model, task: Task, methods: list[str], **options: Any
) -> list[PruningCurve]:
    """Find orders on half of the prompts, and make and write their curves on the other half."""
    from interp.causal.pruning.search import search_curves

    options.pop("resume", None)
    return _written(run, search_curves(model, task, methods, **options))


def _written(run: Run, made: list[PruningCurve]) -> list[PruningCurve]:
    from interp.report.pruning_page import save_curves

    if (folder := run.folder("pruning.html", merged=("methods",))) is not None:
        save_curves(made, folder)
    return made


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
