"""Pruning: remove players in the order of a ranking and measure the task.

With a good ranking the task stays intact while the least important heads are removed
("least-first"), and fails at once when the most important are removed ("most-first"). The quality
is judged against random orders, which come with every curve, and on held-out prompts: see
`interp.causal.pruning.folds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from interp.causal.game.game import Progress, RunEstimate
from interp.causal.pruning.folds import loop_areas, swapped
from interp.causal.pruning.plan import PruningPlan, Ranked, plan_pruning
from interp.causal.pruning.result import PruningCurve
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.steps import finishing
from interp.core.ties import largest
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

MOST = 60_000  # maximum evaluations of greedy pruning by default
LOOPS = 10  # bootstrap draws in which prompts are ranked and judged again


@takes_model
@finishing()
def pruning_curve(
    model: Model,
    task: Task,
    ranking: Ranked | None = None,
    *,
    how: Literal["one-shot", "greedy"] = "one-shot",
    order: Literal["least-first", "most-first"] = "least-first",
    kind: str = "zero",
    n_random: int = 20,
    seed: int = 0,
    steps: int | Sequence[int] | None = None,
    held_out: bool = True,
    n_loops: int = LOOPS,
    max_evaluations: int | None = MOST,
    name: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> PruningCurve:
    """Measure the task against the number of removed players, beside random orders.

    A ranking made on the task's prompts is judged twice: on the same prompts, which is biased in
    its favour, and cross-fitted (`held_out_per_prompt`, `held_out_area`): ranked on one half of the
    prompts and judged on the other, and vice versa.

    Args:
        model: the model.
        task: the task to measure.
        ranking: an importance; a table with one metric; or labels or heads, most important first.
            Required for "one-shot"; not allowed for "greedy", which makes its own.
        how: "one-shot" removes in the ranking's order. "greedy" evaluates every remaining player
            after each removal and removes the one whose removal hurts least (with "most-first":
            most): n(n+1)/2 evaluations for n players, three times that with the two halves. It
            accounts for redundancy, and is fitted to the task's prompts, so its curve is optimistic
            on them.
        order: "least-first" or "most-first", the players removed first.
        kind: what replaces a removed player; see `interp.causal.game.replacement`.
        n_random: number of random orders, drawn with `seed`, on the same prompts; 0 for none.
        seed: seed of the random orders and halves.
        steps: the counts to evaluate, or a number of equal steps. By default all counts up to 24,
            beyond that 24 equal steps, of which 6 are measured for random orders and for the draws
            of `n_loops`, whose curves are averaged. The undisturbed model is always included;
            greedy stops after the last count.
        held_out: cross-fit an importance of this task, or greedy, as well. It needs two prompts
            (from two clusters, if labelled) and values per prompt, which a table does not have.
        n_loops: number of bootstrap draws of the prompts in which the halves, the rankings and the
            judging are repeated, for the interval of the held-out area; two orders each. With 0,
            and always for greedy, the interval takes both rankings as fixed.
        max_evaluations: raise if greedy needs more evaluations; None for no limit.
        name: name of the curve in legends; by default the metric of the ranking.
        progress: see `Progress`.
        options: of `Game`: players, stack, heads, without, ... By default the players are those of
            the importance.

    Raises:
        OptionError, UnknownName: the ranking lacks players or names unknown ones, options do not
            fit, or greedy exceeds `max_evaluations`.

    Unit: of the task.

    Cost: One forward pass per step and order; greedy n(n+1)/2.

    Null: random orders on the same prompts.

    Not for: reporting a greedy curve on the prompts that it was fitted to.

    Reference: Michel et al. 2019, "Are Sixteen Heads Really Better than One?".
    """
    plan = plan_pruning(
        model,
        task,
        ranking,
        how,
        order,
        kind,
        n_random,
        seed,
        steps,
        name,
        options,
        held_out,
        n_loops,
    )
    if how == "greedy" and max_evaluations is not None and plan.evaluations > max_evaluations:
        raise OptionError(
            f"greedy pruning of {len(plan.game)} players takes {plan.evaluations:,} evaluations, "
            f"more than max_evaluations={max_evaluations:,} ({plan.estimate()}); use fewer steps "
            f"or players, raise the limit, or use how='one-shot'"
        )
    stated = progress or (lambda what, done, total: None)
    if plan.removed is None:
        removed, paths = _greedy(plan, stated)
        _, drawn, random = plan.values(stated, plan.greedy_evaluations)
    else:
        removed = plan.removed
        paths, drawn, random = plan.values(stated, 0)
    ranked, halves = paths[0], paths[1:3]
    game, task_unit = plan.game, task.unit
    last = int(plan.counts[-1])
    apart, loops = None, []
    if len(halves):
        apart = swapped(plan.folds[0], halves[0], halves[1])
        if len(random) and len(plan.folds) > 1:
            share = plan.coarse / last
            loops = loop_areas(plan.folds[1:], drawn, random, share, seed)
    provenance = model_provenance(model) | game.about()
    provenance |= {
        "how": how,
        "order": order,
        "ranking": plan.name,
        "n_random": n_random,
        "seed": seed,
        "evaluations": plan.evaluations,
        "ranked_on": plan.ranked_on,
        "n_loops": len(loops),
        "made_by": "interp.causal.pruning_curve",
    }
    return PruningCurve(
        plan.name,
        plan.counts,
        tuple(game.players.labels[i] for i in removed[:last]),
        ranked,
        random,
        len(game),
        order,
        task_unit,
        task.higher_is_better,
        seed,
        provenance,
        apart,
        tuple(loops),
        task.clusters,
        None if len(plan.coarse) == len(plan.counts) else plan.coarse,
    )


@takes_model
def estimate_pruning(
    model: Model,
    task: Task,
    ranking: Ranked | None = None,
    *,
    how: Literal["one-shot", "greedy"] = "one-shot",
    order: Literal["least-first", "most-first"] = "least-first",
    kind: str = "zero",
    n_random: int = 20,
    seed: int = 0,
    steps: int | Sequence[int] | None = None,
    held_out: bool = True,
    n_loops: int = LOOPS,
    **options: Any,
) -> RunEstimate:
    """Estimate the time and memory of `pruning_curve`, with the same arguments."""
    plan = plan_pruning(
        model,
        task,
        ranking,
        how,
        order,
        kind,
        n_random,
        seed,
        steps,
        None,
        options,
        held_out,
        n_loops,
    )
    return plan.estimate()


def _greedy(plan: PruningPlan, progress: Progress) -> tuple[list[int], np.ndarray]:
    """Return the order found and the task `[order, count, prompt]` on all prompts and halves."""
    which = [np.ones(len(plan.game.task), dtype=bool)]
    if plan.folds:
        which += [plan.folds[0].first > 0, plan.folds[0].second > 0]
    each = plan.greedy_evaluations // len(which)
    searches = [_greedy_on(plan, progress, on, k * each) for k, on in enumerate(which)]
    return searches[0][0], np.stack([path for _, path in searches])


def _greedy_on(
    plan: PruningPlan, progress: Progress, which: np.ndarray, evaluated: int
) -> tuple[list[int], np.ndarray]:
    """Return the best order for some prompts, and the task of all prompts `[count, prompt]`."""
    game = plan.game
    n, last = len(game), int(plan.counts[-1])
    total = plan.evaluations
    sign = 1 if game.task.higher_is_better != plan.most_first else -1
    gates = torch.ones(n, dtype=torch.double)
    removed: list[int] = []
    path = [game.clean.numpy()]
    for _ in range(last):
        left = [i for i in range(n) if gates[i] == 1]
        table = gates.repeat(len(left), 1)
        table[torch.arange(len(left)), left] = 0

        def tell(what: str, done: int, of: int, before: int = evaluated) -> None:
            progress(f"{what}, greedy", before + done, total)

        values = game.values(table, progress=tell)
        evaluated += len(left)
        # the first of equal ones, so that the order does not depend on batching
        best = largest(sign * values.numpy()[:, which].mean(1))
        removed.append(left[best])
        gates[left[best]] = 0
        path.append(values[best].numpy())
    return removed, np.stack(path)[plan.counts]
