"""Test of heads as an ensemble: each head alone, their uniform average, learned weights, all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.causal.game.players import Players
from interp.causal.gating.gated_task import GatedTask
from interp.causal.gating.learn import halves
from interp.causal.gating.units import GatedUnits, selected
from interp.causal.importance import mean_columns
from interp.causal.task import Task
from interp.core.errors import NonFiniteError, OptionError
from interp.core.presenter import present
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.core.steps import finishing
from interp.core.ties import largest
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

_LEAST = 4  # prompts


@takes_model
@finishing()
def head_aggregation(
    model: Model,
    task: Task,
    *,
    fit: Task | None = None,
    heads: Any = None,
    kind: str = "zero",
    steps: int = 150,
    rate: float = 0.05,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> ResultRows:
    """Measure a task with each head alone, with averages of all heads, and with learned weights.

    A head with the factor w contributes w times its output and 1 - w times its replacement. Where
    each head alone does the task as well as all of them, the heads are an ensemble of solvers;
    where only a weighted sum does, the task needs them to be combined. Weights and the best head
    are chosen on one half of the prompts; every number is from the other half.

    Args:
        model: The model.
        task: The task to measure.
        fit: The same prompts with a differentiable measure, such as a loss, by which weights are
            fitted; by default the task itself.
        heads: The heads to combine; by default all. Other heads stay as they are.
        kind: Replacement of a head with the factor 0; see `interp.causal.game.replacement`.
        steps: Steps of Adam for the weights.
        rate: Learning rate.
        seed: Seed of the split into halves.
        progress: See `Progress`.
        **options: Options of `Game`.

    Returns:
        One row per sum of the heads' outputs: part ("none", "L0H0 alone" and so on, "best alone",
        "uniform average", "scaled average", "learned weights" and "full"), score (the task's value,
        mean over held-out prompts) with sem, and lost, lost_low and lost_high (the loss against all
        heads, paired over prompts, with its 95 % interval). Array: weights, the factor of every
        head, `[row, head]`. Fact: heads_of, the names of these heads.

    Raises:
        OptionError: There are fewer than two heads or four prompts, the number of prompts of `fit`
            differs, or the fitted task has no gradient.
        NonFiniteError: The fit diverges.

    Unit: of the task.

    Cost: one forward pass per head over the held-out prompts, and `steps` forward and backward
    passes over the others.

    Null: "none", the task without these heads.

    Not for: heads of several layers that work in sequence: alone, none of them can do the task.

    Reference: Zsámboki et al. 2025, arXiv:2502.06923 (the question; weights, split and intervals
    are ours).
    """
    given = task if fit is None else fit
    if len(given) != len(task):
        raise OptionError(f"fit has {len(given)} prompts and the task {len(task)}; give the same")
    if not given.has_gradient:
        raise OptionError(
            f"task {given.name} has no gradient, so no weights can be fitted; give fit= with a loss"
            " or a logit difference on the same prompts"
        )
    if len(task) < _LEAST:
        raise OptionError(f"{len(task)} prompts; give {_LEAST} or more, half to fit on")
    players = Players.of(model, "heads", heads=heads)
    if len(players) < 2:
        raise OptionError("one head cannot be combined with others; name two or more")
    first, second = halves(task, seed)
    units = GatedUnits.of(model, players, "none")
    n = len(units)
    fitted = GatedTask(model, selected(given, first), units, kind, seed=seed, **options)
    tell = _telling(progress, 2 * steps)
    scale = _ascend(fitted, torch.ones(1, dtype=torch.double), n, steps, rate, tell, 0)
    learned = _ascend(fitted, torch.ones(n, dtype=torch.double), n, steps, rate, tell, steps)
    alone = torch.eye(n, dtype=torch.double)
    on_first = fitted.values(alone).mean(1) * given.sign
    best = largest(on_first)
    named = {
        "none": torch.zeros(n, dtype=torch.double),
        **{f"{label} alone": alone[i] for i, label in enumerate(units.labels)},
        "best alone": alone[best],
        "uniform average": torch.full((n,), 1 / n, dtype=torch.double),
        "scaled average": scale.expand(n),
        "learned weights": learned,
        "full": torch.ones(n, dtype=torch.double),
    }
    weights = torch.stack([w.detach() for w in named.values()])
    judged = GatedTask(model, selected(task, second), units, kind, seed=seed, **options)
    values = judged.values(weights).numpy()
    about = model_provenance(model) | judged.game.about()
    about |= {
        "made_by": "interp.causal.head_aggregation",
        "fitted_by": given.name,
        "steps": steps,
        "rate": rate,
        "best_alone": units.labels[best],
        "n_fitted": len(first),
        "full_per_prompt": values[-1].tolist(),
    }
    clusters = None if task.clusters is None else tuple(task.clusters[i] for i in second)
    score, lost = (mean_columns(x, clusters) for x in (values, task.sign * (values[-1] - values)))
    columns = {
        "part": tuple(named),
        "score": score["score"],
        "sem": score["sem"],
        "lost": lost["score"],
        "lost_low": lost["low"],
        "lost_high": lost["high"],
    }
    facts = {"metric": "head_aggregation", "unit": task.unit, "n": values.shape[1]}
    return ResultRows(
        "HeadAggregation",
        columns,
        ("part",),
        about,
        facts | {"heads_of": units.labels},
        values,
        arrays={"weights": weights.numpy()},
        clusters=clusters,
    )


def _telling(progress: Progress | None, whole: int) -> Any:
    def tell(done: int) -> None:
        if progress is not None:
            progress("fitting weights", done, whole)

    return tell


def _ascend(
    fitted: GatedTask, start: Tensor, n: int, steps: int, rate: float, tell: Any, before: int
) -> Tensor:
    """Improve the task's mean value by Adam over the factors of the heads."""
    w = start.clone().to(fitted.game.model.device).requires_grad_()
    adam = torch.optim.Adam([w], lr=rate)
    total = sum(fitted.rows(i) for i in range(fitted.n_batches))
    for step in range(steps):
        adam.zero_grad()
        for number in range(fitted.n_batches):
            with torch.enable_grad():
                value = fitted.value(number, w.expand(n)[None])
                (-fitted.game.task.sign * value.sum() / total).backward()
        if w.grad is None or not bool(torch.isfinite(w.grad).all()):
            raise NonFiniteError(
                f"{fitted.game.model.name}: the gradient of {fitted.game.task.name} by the weights"
                f" of heads is NaN or infinite at step {step}; lower rate={rate}, or use float32"
            )
        adam.step()
        tell(before + step + 1)
    return w.detach().cpu()


def head_aggregation_summary(found: ResultRows) -> str:
    """Return the task's value of the sums that are not of one named head."""
    score = dict(zip(found.part, found.score, strict=True))
    names = ("none", "best alone", "uniform average", "learned weights", "full")
    scores = ", ".join(f"{name} {score[name]:.4g}" for name in names if name in score)
    return f"HeadAggregation({scores} {found.unit}, {found.n} held-out prompts)"


present("HeadAggregation", summary=head_aggregation_summary)
