"""Differences of measured scores of two models, or groups of models: heads and prompts paired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import OptionError
from interp.heads.between_models.measured import PairableScores, require_paired
from interp.heads.between_models.result import ModelDifferences

if TYPE_CHECKING:
    from interp.heads.roles.result import HeadRoles
    from interp.model.model import Model

RESOLUTION = 1e-5
"""Differences up to this share of a metric's largest score count as rounding, and become 0."""


@dataclass
class ComparedRun:
    """One model of a comparison: scores, roles of its heads and its loss on each prompt.

    `model` is released where it is not needed.
    """

    name: str
    scores: dict[str, PairableScores]
    model: Model | None
    made: Mapping[str, Any]
    roles: HeadRoles | None = None
    losses: np.ndarray | None = None
    why_no_loss: str = ""


def paired_differences(
    a: Sequence[Mapping[str, PairableScores]],
    b: Sequence[Mapping[str, PairableScores]],
    *,
    paired: bool = False,
) -> ModelDifferences:
    """Compute the differences between two groups of models from their measured scores."""
    runs = [[ComparedRun(f"model {i}", dict(x), None, {}) for i, x in enumerate(s)] for s in (a, b)]
    require_same_heads(runs, matched=False)
    return group_differences(runs, paired, None)


def require_same_heads(runs: Sequence[Sequence[ComparedRun]], matched: bool) -> None:
    """Raise unless all models have the same heads and every metric of the first."""
    reference = runs[0][0]
    for run in (run for side in runs for run in side):
        for metric, first in reference.scores.items():
            if metric not in run.scores:
                raise OptionError(f"{run.name} has no scores of {metric}, so it cannot be compared")
            other = run.scores[metric]
            if first.made.get("prompts_hash") != other.made.get("prompts_hash") and None in (
                reference.made.get("content_hash"),
                run.made.get("content_hash"),
            ):
                raise OptionError(f"{metric} of {run.name} was measured on other prompts")
            if not matched and first.shape() != other.shape():
                raise OptionError(
                    f"{reference.name} has {_shape(first)} and {run.name} {_shape(other)}; heads "
                    "are compared one by one only between models of one shape. Use "
                    "interp.heads.match_heads (interp compare match), or match='patterns' to pair "
                    "similar heads"
                )
            require_paired(run.name, first, other, metric)


def _shape(found: PairableScores) -> str:
    counts = list(found.shape().values())
    return f"{len(counts)} layers of {'/'.join(map(str, sorted(set(counts))))} heads"


def _values(run: ComparedRun, metric: str, key: tuple[str, int], heads: Any) -> np.ndarray:
    """Return `[prompt, head]` of one attention, in the order of the heads of the first model."""
    scores = run.scores[metric]
    if heads is None or id(run) not in heads:
        return scores.sites[key]
    stack, layer = key
    n = max((h + 1 for s, x, h in heads[id(run)] if (s, x) == key), default=0)
    rows = next(iter(scores.sites.values())).shape[0]
    out = np.full((rows, n), np.nan)
    for h in range(n):
        there = heads[id(run)].get((stack, layer, h))
        if there is not None:
            out[:, h] = scores.sites[stack, there.layer][:, there.head]
    return out


def group_differences(
    runs: Sequence[Sequence[ComparedRun]], paired: bool, heads: Any
) -> ModelDifferences:
    """Compute the differences of every head that has a counterpart."""
    rows, values, labels = [], [], {}
    reference = runs[0][0]
    for metric, first in reference.scores.items():
        labels[metric] = first.clusters
        scale = max(float(np.nanmax(np.abs(x), initial=0.0)) for x in first.sites.values())
        for (stack, layer), x in first.sites.items():
            sides = []
            for side in runs:
                each = [_values(run, metric, (stack, layer), heads) for run in side]
                width = x.shape[1]
                sides.append(np.stack([_widened(e, width) for e in each]))
            for h in range(x.shape[1]):
                a, b = sides[0][..., h], sides[1][..., h]  # [model, prompt]
                gap = b.mean(0) - a.mean(0)
                if np.isnan(gap).all():
                    continue  # a head without a match
                if np.nanmax(np.abs(gap)) <= RESOLUTION * scale:
                    gap = np.where(np.isnan(gap), gap, 0.0)
                row = {"stack": stack, "layer": layer, "head": h, "metric": metric}
                row |= {"unit": first.unit} | side_scores(a, b, gap, paired)
                if heads is not None and len(runs[1]) == 1:
                    row["head_b"] = str(heads[id(runs[1][0])][stack, layer, h])
                rows.append(row)
                values.append(np.full_like(gap, np.nan) if first.exact else gap)
    longest = max((len(x) for x in values), default=0)
    padded = [np.pad(x, (0, longest - len(x)), constant_values=np.nan) for x in values]
    return ModelDifferences(tuple(rows), np.stack(padded), labels)


def _widened(x: np.ndarray, width: int) -> np.ndarray:
    """Return the columns of the first model's heads; those without a match are NaN."""
    return np.pad(x, ((0, 0), (0, width - x.shape[1])), constant_values=np.nan)


def side_scores(a: np.ndarray, b: np.ndarray, gap: np.ndarray, paired: bool) -> dict[str, Any]:
    """Return both scores, and the variation between the models of each group."""
    there = ~np.isnan(gap)
    per_a, per_b = a[:, there].mean(1), b[:, there].mean(1)
    score_a = float(per_a.mean())
    row: dict[str, Any] = {"score_a": score_a, "score_b": score_a + float(gap[there].mean())}
    for side, means in (("a", per_a), ("b", per_b)):
        row |= {f"n_{side}": len(means)}
        row |= {f"spread_{side}": float(means.std(ddof=1)) if len(means) > 1 else float("nan")}
    both = per_b - per_a if paired and len(per_a) > 1 else None
    row["n_paired"] = 0 if both is None else len(both)
    row["spread_paired"] = float("nan") if both is None else float(both.std(ddof=1))
    return row
