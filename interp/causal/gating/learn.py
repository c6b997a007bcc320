"""Learned gates over heads, kv groups, attention layers and MLPs, with restarts.

found = learn_gates(model, task)                    # hard concrete gates (Voita)
found = learn_gates(model, task, method="causal")   # causal head gating
found.kept, found.roles, found.held_out
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from interp.causal.gating.fit import Fitted, fit_causal, fit_hard_concrete
from interp.causal.gating.gated_task import GatedTask
from interp.causal.gating.result import OPEN, LearnedGates
from interp.causal.gating.units import GatedUnits, layer_matched_sets, selected
from interp.causal.pruning.folds import folds
from interp.causal.task import Task, token_ids
from interp.core.errors import OptionError, UnknownName
from interp.core.protocols import Progress
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model
from interp.model.sources.remote import RemoteModel

if TYPE_CHECKING:
    from interp.model.model import Model

METHODS = ("hard_concrete", "causal")
PER_STEP = 4  # prompts of a step; on planted circuits, sets are as good as with all of a half
RATE = {"hard_concrete": 0.1, "causal": 0.3}


@takes_model
def learn_gates(
    model: Model,
    task: Task,
    *,
    method: Literal["hard_concrete", "causal"] = "hard_concrete",
    players: str | Mapping[str, Any] = "heads",
    mlps: Literal["none", "with", "only"] = "none",
    kind: str = "zero",
    penalty: float | None = None,
    cost: Literal["count", "parameters", "flops", "cache"] = "count",
    n_restarts: int = 3,
    steps: int = 150,
    rate: float | None = None,
    n_random: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> LearnedGates:
    """Fit a gate for every unit to half of the prompts, and judge the kept set on the other half.

    Args:
        model: the model, whose weights stay fixed.
        task: a task with a gradient.
        method: "hard_concrete": random gates whose expected cost is penalised. "causal": gates
            sigmoid(a), fitted without pressure, then from there with pressure towards 0 and, apart
            from that, towards 1; see `LearnedGates.roles`.
        players: "heads", "kv_groups", "layers" (all heads of an attention), or groups of heads.
        mlps: "with" gates MLPs too, "only" gates nothing else.
        kind: what replaces the output of a closed unit; see `interp.causal.game.replacement`.
        penalty: hard concrete: the price of keeping every unit, as a multiple of the change of the
            task when all units are removed; 0.5 by default. A unit stays if it contributes more
            than this times its share of the cost. Causal: the pressure per mean logit; 0.02 by
            default.
        cost: what the penalty counts, with `method="hard_concrete"`; see `GatedUnits.cost`.
        n_restarts: number of fits, each from its own start.
        steps: maximum number of steps of each fit, of about 4 prompts each. A fit ends before if
            no gate moved by more than 0.01 in each of the last two checks, 20 steps apart. Of six
            fits on `bundled:induction`, five kept after 150 steps what they keep after 300, and
            the sixth one head more.
        rate: learning rate of Adam; by default 0.1 for hard concrete and 0.3 for causal gates.
        n_random: number of random sets on the held-out prompts, with as many units in every layer
            as the set of the first restart.
        seed: seed of the halves, starts, noise and random sets.
        progress: see `Progress`.
        options: of `Game`: stack, heads, without, max_tokens, reference.

    Raises:
        OptionError: the task has no gradient, does not depend on the units, or options do not fit.
        UnknownName: the method, cost or kind does not exist.
        NonFiniteError: training diverges.

    Unit: gate, 0 to 1; held-out values in the task's unit.

    Cost: Up to `n_restarts` times `steps` forward and backward passes of about 4 prompts; causal
        gates three times that.

    Null: random sets with as many units in every layer, on held-out prompts.

    Not for: one exact answer: sets of equal quality differ between restarts, as the intervals show.

    Reference: Voita et al. 2019, "Analyzing Multi-Head Self-Attention"; Nam et al. 2025, "Causal
    Head Gating".
    """
    penalty, rate = _settings(model, task, method, penalty, cost, n_restarts, steps, rate, n_random)
    chosen = {k: options.pop(k) for k in ("stack", "heads") if k in options}
    units = GatedUnits.of(model, players, mlps, **chosen)
    first, second = halves(task, seed)
    fitted = selected(task, first)
    gated = GatedTask(model, fitted, units, kind, seed=seed, **_in_small_steps(fitted, options))
    everything = torch.stack([torch.ones(len(units)), torch.zeros(len(units))])
    ends = gated.values(everything).numpy()
    span = abs(float(ends[0].mean() - ends[1].mean()))
    if span == 0:
        raise OptionError(
            f"task {task.name} does not change when all {len(units)} units are removed; check "
            "which logits it reads"
        )
    lengths = [len(ids) for ids in token_ids(task.prompts)]
    costs = units.cost(model, cost, float(np.mean(lengths)) if lengths else 0.0)
    fits, upper = [], []
    each = steps * (3 if method == "causal" else 1)
    for number in range(n_restarts):
        restart_seed = seed * 1000 + number

        def tell(step: int, before: int = number * each) -> None:
            if progress is not None and step % 10 == 0:
                progress("gates", before + step, n_restarts * each)

        if method == "hard_concrete":
            settings = {"seed": restart_seed, "steps": steps, "rate": rate, "tell": tell}
            fits.append(fit_hard_concrete(gated, costs, penalty, span, **settings))
        else:
            down, up = _causal(gated, penalty, span, restart_seed, steps, rate, tell)
            fits.append(down)
            upper.append(up.gate)
    gate = np.stack([f.gate for f in fits])
    judged = selected(task, second) if second else None
    held_out, on_fitted = _judged(
        model, judged, gated, units, kind, gate, n_random, seed, options, ends
    )
    provenance = model_provenance(model) | gated.game.about() | task.about()
    provenance |= {
        "method": method,
        "penalty": penalty,
        "rate": rate,
        "max_steps": steps,
        "seed": seed,
        "mlps": mlps,
        "cost": cost,
        "span": span,
        "fitted_on": first,
        "judged_on": second,
        "n_random": n_random,
        "made_by": "interp.causal.learn_gates",
    }
    clusters = None if task.clusters is None else tuple(task.clusters[i] for i in second)
    return LearnedGates(
        method,
        units.labels,
        units.head_labels,
        gate,
        np.stack([f.a for f in fits]),
        costs,
        {"count": "units", "cache": "cache bytes"}.get(cost, cost),
        np.stack(upper) if upper else None,
        tuple(f.steps for f in fits),
        tuple(f.settled for f in fits),
        held_out,
        on_fitted,
        task.unit,
        task.higher_is_better,
        clusters,
        provenance,
    )


def _in_small_steps(task: Task, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with batches of about `PER_STEP` prompts, for more steps per forward."""
    longest = max((len(ids) for ids in token_ids(task.prompts)), default=0)
    most = options.get("max_tokens", PER_STEP * longest)
    return options | ({"max_tokens": min(most, PER_STEP * longest)} if longest else {})


def _settings(
    model: Model,
    task: Task,
    method: str,
    penalty: float | None,
    cost: str,
    restarts: int,
    steps: int,
    rate: float | None,
    n_random: int,
) -> tuple[float, float]:
    if method not in METHODS:
        raise UnknownName("method of gates", method, METHODS)
    if isinstance(model, RemoteModel):
        raise OptionError(f"gates need gradients, and {model.name} runs at {model.elsewhere}")
    if not task.has_gradient:
        raise OptionError(
            f"task {task.name} is a step function, so it has no gradient; use a loss or a logit "
            "difference"
        )
    if method == "causal" and cost != "count":
        raise OptionError("causal gates have no cost: pressure is equal on all; omit cost=")
    if min(restarts, steps) < 1 or n_random < 2:
        raise OptionError(
            f"restarts={restarts}, steps={steps}, n_random={n_random}; at least 1, 1 and 2"
        )
    penalty = {"hard_concrete": 0.5, "causal": 0.02}[method] if penalty is None else penalty
    rate = RATE[method] if rate is None else rate
    if not (math.isfinite(penalty) and penalty >= 0 and math.isfinite(rate) and rate > 0):
        raise OptionError(f"penalty={penalty}, rate={rate}; a penalty is 0 or more, a rate above 0")
    return penalty, rate


def halves(task: Task, seed: int) -> tuple[list[int], list[int]]:
    """Return the prompts to choose heads by and those to judge on.

    All and none for one prompt or cluster.
    """
    split = folds(len(task), 0, seed, task.clusters)
    if not split:
        return list(range(len(task))), []
    first, second = np.flatnonzero(split[0].first), np.flatnonzero(split[0].second)
    return first.tolist(), second.tolist()


def _causal(
    gated: GatedTask, pressure: float, span: float, seed: int, steps: int, rate: float, tell: Any
) -> tuple[Fitted, Fitted]:
    """Fit without pressure, then from there towards 0 and towards 1."""
    generator = torch.Generator().manual_seed(seed)
    n = len(gated.units)
    start = torch.logit(torch.rand(n, generator=generator, dtype=torch.double).clamp(0.02, 0.98))
    done = 0
    fits: list[Fitted] = []
    for force in (0.0, -pressure, pressure):
        a: Tensor = torch.from_numpy(fits[0].a) if fits else start

        def told(step: int, before: int = done) -> None:
            tell(before + step)

        fits.append(fit_causal(gated, a, force, span, seed=seed, steps=steps, rate=rate, tell=told))
        done += steps
    return fits[1], fits[2]


def _judged(
    model: Model,
    judged: Task | None,
    gated: GatedTask,
    units: GatedUnits,
    kind: str,
    gate: np.ndarray,
    n_random: int,
    seed: int,
    options: dict[str, Any],
    ends: np.ndarray,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the task with the kept sets, on the held-out and on the fitted prompts."""
    kept = torch.from_numpy((gate > OPEN).astype(float))
    fitted = {"all": ends[:1], "kept": gated.values(kept).numpy()}
    if judged is None:
        return {}, fitted
    rng = np.random.default_rng([seed, 28])
    random = layer_matched_sets(units, kept[0].numpy(), n_random, rng)
    table = torch.cat([torch.ones(1, len(units)), torch.zeros(1, len(units)), kept, random])
    other = GatedTask(model, judged, units, kind, seed=seed, **options)
    set_values = other.values(table).numpy()
    n = 2 + len(kept)
    sets = {
        "all": set_values[:1],
        "none": set_values[1:2],
        "kept": set_values[2:n],
        "random": set_values[n:],
    }
    return sets, fitted
