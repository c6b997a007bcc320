"""Test of heads as an ensemble: each head alone, their uniform average, learned weights, all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.game.players import Players
from interp.causal.gating.gated_task import GatedTask
from interp.causal.gating.learn import halves
from interp.causal.gating.units import GatedUnits, selected
from interp.causal.importance import standard_error
from interp.causal.task import Task
from interp.core.clusters import cluster_count
from interp.core.errors import NonFiniteError, OptionError
from interp.core.intervals import around
from interp.core.protocols import Progress
from interp.core.result import Result
from interp.core.steps import finishing
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

_LEAST = 4  # prompts


@dataclass(frozen=True, eq=False, repr=False)
class HeadAggregation(Result):
    """Value of a task under several sums of the heads' outputs, on held-out prompts.

    Args:
        labels: By row: "none", "L0H0 alone" and so on, "best alone", "uniform average", "scaled
            average", "learned weights" and "full".
        weights: By row, the factor of every head.
        per_prompt: The task's value on held-out prompts, `[row, prompt]`.
        heads: Names of the heads.
        unit: The task's unit.
        higher_is_better: Direction of the task.
        clusters: A label per held-out prompt, where prompts are dependent.
        provenance: How it was made.
    """

    labels: tuple[str, ...]
    weights: Float[np.ndarray, "row head"] = field(repr=False)
    per_prompt: Float[np.ndarray, "row prompt"] = field(repr=False)
    heads_of: tuple[str, ...]
    unit: str
    higher_is_better: bool
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _units = ("part",)
    _per_row = ("labels", "weights", "per_prompt")

    def __len__(self) -> int:
        return len(self.labels)

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "head_aggregation", "unit": self.unit, "n": self.per_prompt.shape[1]}

    @property
    def _lost(self) -> Float[np.ndarray, "row prompt"]:
        sign = 1 if self.higher_is_better else -1
        return sign * (self._full - self.per_prompt)

    @property
    def _full(self) -> Float[np.ndarray, " prompt"]:
        full = self.provenance["full_per_prompt"]
        return np.asarray(full, dtype=float)

    def _rows(self) -> pd.DataFrame:
        """Return a row per sum: the task's value, and the loss against all heads, paired."""
        import pandas as pd

        lost = self._lost
        ends = _t_bounds(lost, self.clusters)
        return pd.DataFrame(
            {
                "part": self.labels,
                "score": self.per_prompt.mean(1),
                "sem": standard_error(self.per_prompt, self.clusters),
                "lost": lost.mean(1), "lost_low": ends[:, 0], "lost_high": ends[:, 1],
            }
        )  # fmt: skip

    def __repr__(self) -> str:
        rows = self.wide().set_index("part")
        said = [
            f"{name} {rows.loc[name, 'score']:.4g}"
            for name in ("none", "best alone", "uniform average", "learned weights", "full")
            if name in rows.index
        ]
        n = self.per_prompt.shape[1]
        return f"HeadAggregation({', '.join(said)} {self.unit}, {n} held-out prompts)"


def _t_bounds(
    per_prompt: Float[np.ndarray, "row prompt"], clusters: Sequence[str] | None
) -> Float[np.ndarray, "row 2"]:
    n = cluster_count(per_prompt.shape[1], clusters)
    return around(per_prompt.mean(1), [(standard_error(per_prompt, clusters), n - 1.0)])


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
) -> HeadAggregation:
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
    best = int(on_first.argmax())
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
        "made_by": "interp.causal.head_aggregation", "fitted_by": given.name, "steps": steps,
        "rate": rate, "best_alone": units.labels[best], "n_fitted": len(first),
        "full_per_prompt": values[-1].tolist(),
    }  # fmt: skip
    clusters = None if task.clusters is None else tuple(task.clusters[i] for i in second)
    return HeadAggregation(
        tuple(named), weights.numpy(), values, units.labels, task.unit, task.higher_is_better,
        clusters, about,
    )  # fmt: skip


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
