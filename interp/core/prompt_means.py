"""Means over prompts of any named quantities, with cluster errors, nulls and paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_summary, numbered
from interp.core.result import Result
from interp.core.statistics import RANDOM_FLIPS, holm, sign_flip_p

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class PromptMeans(Result):
    """Means over prompts, one row per metric and unit of analysis.

    A prompt without a value (NaN) is left out of its row. `p` is the two-sided p value of the mean
    difference of a row from its null, paired over prompts (or over their clusters), by random signs
    of the differences; `p_holm` is corrected over the rows of one metric.

    Args:
        about: one mapping per row: the metric, its unit, and the columns of `units`.
        units: columns that name the unit of analysis.
        per_prompt: value of each row on each prompt.
        nulls: null of each row on each prompt; None if there is none.
        clusters: a label per prompt where prompts are not independent.
        notes: further facts about the computation.
        provenance: model, prompts, options and versions.
    """

    about: tuple[Mapping[str, Any], ...] = field(repr=False)
    units: tuple[str, ...]
    per_prompt: Float[Array, "row prompt"] = field(repr=False)
    nulls: Float[Array, "row prompt"] | None = field(default=None, repr=False)
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    notes: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _per_row = ("about", "per_prompt", "nulls")

    @property
    def _units(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.units

    @classmethod
    def tested(
        cls,
        about: Sequence[Mapping[str, Any]],
        units: Sequence[str],
        per_prompt: Float[Array, "row prompt"],
        nulls: Float[Array, "row prompt"] | None = None,
        *,
        clusters: Sequence[str] | None = None,
        **rest: Any,
    ) -> Self:
        """Make the result, with the p values of all rows against their nulls."""
        values = np.asarray(per_prompt, dtype=np.float64)
        rows = [dict(one) for one in about]
        if nulls is not None:
            p = np.array([paired_p(x, clusters) for x in values - nulls])
            names = [one.get("metric", "") for one in rows]
            for name in dict.fromkeys(names):
                mine = [i for i, other in enumerate(names) if other == name]
                for i, corrected in zip(mine, holm(p[mine]), strict=True):
                    rows[i] |= {"p": float(p[i]), "p_holm": float(corrected)}
        labels = None if clusters is None else tuple(clusters)
        return cls(tuple(rows), tuple(units), values, nulls, labels, **rest)

    def _rows(self) -> pd.DataFrame:
        """Return a row per metric and unit of analysis: mean, error, null and p values."""
        import pandas as pd

        rows = []
        for i, one in enumerate(self.about):
            found = cluster_summary(self.per_prompt[i][:, None], self.clusters)
            row = dict(one) | {"score": float(found.score[0]), "sem": float(found.sem[0])}
            row |= {"n": found.n, "clusters": found.clusters}
            if self.nulls is not None:
                row["null"] = float(cluster_summary(self.nulls[i][:, None]).score[0])
            rows.append(row)
        columns = dict.fromkeys(["metric", *self.units, "score", "sem", "n", "clusters", "unit"])
        return pd.DataFrame(rows, columns=None if rows else pd.Index(list(columns)))


def paired_p(
    apart: Float[Array, " prompt"],
    clusters: Sequence[str] | None = None,
    *,
    flips: int = RANDOM_FLIPS,
    seed: int = 0,
) -> float:
    """Return the sign-flip p value of a mean difference, with one sign for each whole cluster.

    Args:
        apart: difference on each prompt; NaN is left out.
        clusters: a label per prompt; without labels each prompt has its own sign.
        flips: number of random sign flips where there are too many to try all.
        seed: seed of the random flips.
    """
    there = ~np.isnan(apart)
    if clusters is None:
        return sign_flip_p(apart[there], flips=flips, seed=seed)
    kept = [label for label, one in zip(clusters, there, strict=True) if one]
    sums = np.zeros(len(set(kept)))
    np.add.at(sums, numbered(len(kept), kept), apart[there])
    return sign_flip_p(sums, flips=flips, seed=seed)
