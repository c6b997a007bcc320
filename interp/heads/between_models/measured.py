"""Scores of one model that can be paired with those of another: values per prompt and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError
from interp.core.table import HeadTable

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.heads.between_models.shared_prompts import SharedPrompts
    from interp.heads.declaration import BoundAnalysis
    from interp.model.model import Model

SiteKey = tuple[str, int]  # stack and layer


@dataclass(frozen=True, eq=False)
class PairableScores:
    """One metric of one model.

    Args:
        sites: values by stack and layer; a single row of an exact score of weights.
        clusters: a label per prompt where prompts share something.
        exact: True for a score of weights, which has no prompts.
        unit: unit of the score.
        made: provenance of the scores.
    """

    sites: Mapping[SiteKey, Float[np.ndarray, "prompt head"]]
    clusters: tuple[str, ...] | None
    exact: bool
    unit: str
    made: Mapping[str, Any]

    def shape(self) -> dict[SiteKey, int]:
        """Return the number of heads of each attention."""
        return {key: x.shape[1] for key, x in self.sites.items()}


def head_values(
    model: Model,
    bounds: Sequence[BoundAnalysis],
    prompts: SharedPrompts,
    *,
    batch_size: int,
    engine: str,
    seed: int,
    progress: Progress | None,
) -> dict[str, PairableScores]:
    """Score every head of one model on the shared prompts, by metric."""
    from interp.heads.scoring import score_each

    tokenized = prompts.of(model) if any(b.patterned() for b in bounds) else None
    tables = score_each(
        model,
        bounds,
        tokenized,
        null="none",
        seed=seed,
        batch_size=batch_size,
        engine=engine,
        progress=progress,
    )
    return {label: of_table(table, label) for label, table in tables}


def of_table(table: HeadTable, metric: str) -> PairableScores:
    """Return one metric of a table of one model, from its values per prompt."""
    part = table.where(metric=metric)
    if len(part.models) != 1:
        raise OptionError(
            f"a table of {len(part.models)} models cannot be one side of a comparison; choose one "
            "with table.where(model=...)"
        )
    frame = part.wide()
    [provenance] = part.provenance.values()
    unit = str(frame["unit"].iloc[0])
    if part.per_prompt is None:
        if provenance.get("engine") != "weights":
            raise OptionError(
                f"{metric} of {part.models[0]}: {part.why_no_per_prompt}; differences are paired "
                "over prompts, so score the model again with these prompts"
            )
        grid: dict[SiteKey, list[float]] = {}
        for row in frame.to_dict("records"):
            grid.setdefault((row["stack"], row["layer"]), []).append(row["score"])
        return PairableScores(
            {k: np.array([x]) for k, x in grid.items()}, None, True, unit, provenance
        )
    sites: dict[SiteKey, list[np.ndarray]] = {}
    for row, values in zip(frame.to_dict("records"), part.per_prompt, strict=True):
        sites.setdefault((row["stack"], row["layer"]), []).append(np.asarray(values, dtype=float))
    stacked = {key: np.stack(x, 1) for key, x in sites.items()}
    return PairableScores(stacked, part.clusters, False, unit, provenance)


def require_paired(name: str, first: PairableScores, other: PairableScores, metric: str) -> None:
    """Raise unless the values of two models are of the same prompts, in the same order."""
    a, b = (next(iter(x.sites.values())).shape[0] for x in (first, other))
    text = f"{metric} of {name} cannot be paired"
    if first.exact != other.exact:
        raise OptionError(f"{text}: one of the scores is of weights")
    if a != b or first.clusters != other.clusters:
        raise OptionError(
            f"{text}: it was measured on {b} prompts and {a} of the first model, or on others; "
            "both models need the same prompts"
        )
    if first.made.get("settled") != other.made.get("settled"):
        raise OptionError(
            f"{text}: the experiment chose {other.made.get('settled')} for this model and "
            f"{first.made.get('settled')} for the first; give these options explicitly"
        )
