"""Result of matching the heads of two models."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.intervals import MeanIntervals, mean_intervals
from interp.core.presenter import present
from interp.core.result import Result
from interp.core.statistics import benjamini_hochberg, holm

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_MOST = 64  # heads per side of a drawn matrix


@dataclass(frozen=True, eq=False, repr=False)
class HeadMatches(Result):
    """Match of every head of model A in model B, with similarity, p and stability.

    Args:
        rows: stack, layer and head of A; `head_b`, its match ("" without one); `next`, the largest
            similarity with another head of B; null, stability and p (see
            `interp.heads.match_heads`).
        per_prompt: similarity with the match on every prompt, or for every token of circuits.
        clusters: cluster of each prompt, where prompts share something.
        metric: name of the similarity.
        unit: its unit.
        similarity: similarities of all heads, `[head of A, head of B]`, by group of heads.
        provenance: both models, the prompts, `p_all` of the whole assignment and the settings.
        p_holm: p of each row, corrected over all rows by Holm's method, also after `top`.
        p_bh: p of each row, adjusted over all rows by Benjamini and Hochberg's method.
    """

    rows: tuple[Mapping[str, Any], ...]
    per_prompt: Float[np.ndarray, "row prompt"]
    clusters: tuple[str, ...] | None
    metric: str
    unit: str
    similarity: Mapping[str, Float[np.ndarray, "a b"]]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    p_holm: tuple[float, ...] | None = None
    p_bh: tuple[float, ...] | None = None
    _per_row = ("rows", "per_prompt", "p_holm", "p_bh")
    _units = ("stack", "layer", "head")

    def __post_init__(self) -> None:
        if self.p_holm is None or self.p_bh is None:
            p = np.array([row["p"] for row in self.rows], dtype=float)
            object.__setattr__(self, "p_holm", tuple(holm(p).tolist()))
            object.__setattr__(self, "p_bh", tuple(benjamini_hochberg(p).tolist()))

    @property
    def p_all(self) -> float | None:
        """Probability of as similar an assignment under random splits; None without a null."""
        return self.provenance.get("p_all")

    def heads_of_b(self) -> dict[tuple[str, int, int], Head]:
        """Return the match of each head of A that has one, by stack, layer and head."""
        return {
            (row["stack"], row["layer"], row["head"]): Head.parse(row["head_b"])
            for row in self.rows
            if row["head_b"]
        }

    def preserved(self) -> pd.DataFrame:
        """Return the share of A's maps that B preserves, as a whole and by layer of A.

        The share of a head is its similarity with its match beyond that of random matches,
        `(score - null) / (1 - null)`: 1 for equal maps, near 0 for unrelated models, and 0 for a
        head without a match. Of a teacher A and a student B with fewer heads, the share of all
        heads is at most the ratio of their numbers. It is a little above 0 for unrelated models of
        different sizes, since the assignment leaves out the heads that resemble none.

        Returns:
            Rows "all" and one per layer of A: heads, matched, share with low and high (95 %, over
            prompts), and layers_b, the number of matches in each layer of B.

        Raises:
            OptionError: there is no null (n_random=0), or it is 1.
        """
        import pandas as pd

        null = float(self.rows[0]["null"])
        if not null < 1:
            raise OptionError(
                "the share that is preserved needs the null of random matches, below 1; match with "
                "n_random of at least 1, on prompts on which heads differ"
            )
        beyond = np.nan_to_num((np.asarray(self.per_prompt) - null) / (1 - null))
        places = [(row["stack"], row["layer"]) for row in self.rows]
        groups: dict[tuple[str, int], list[int]] = {}
        for at, place in enumerate(places):
            groups.setdefault(place, []).append(at)
        named = {("all", -1): list(range(len(self.rows))), **groups}
        means = np.stack([beyond[which].mean(0) for which in named.values()])
        ends = mean_intervals(means, 0.95, clusters=self.clusters).ends
        rows = []
        for (stack, layer), which, mean, (low, high) in zip(
            named, named.values(), means, ends, strict=True
        ):
            matches = [Head.parse(self.rows[i]["head_b"]) for i in which if self.rows[i]["head_b"]]
            counts = Counter(head.layer for head in matches)
            rows.append(
                {
                    "stack": stack,
                    "layer": layer,
                    "heads": len(which),
                    "matched": len(matches),
                    "share": float(cluster_summary(mean[:, None], self.clusters).score[0]),
                    "low": float(low),
                    "high": float(high),
                    "layers_b": ", ".join(f"L{x}: {n}" for x, n in sorted(counts.items())),
                }
            )
        return pd.DataFrame(rows)

    def _rows(self) -> pd.DataFrame:
        """Return heads, matches, similarity, next similarity, null, p and stability."""
        import pandas as pd

        each = [cluster_summary(x[:, None], self.clusters) for x in self.per_prompt]
        frame = pd.DataFrame(list(self.rows))
        frame["score"] = [float(x.score[0]) for x in each]
        frame["sem"] = [float(x.sem[0]) for x in each]
        frame["n"], frame["clusters"] = [x.n for x in each], [x.clusters for x in each]
        frame["p_holm"], frame["p_bh"] = list(self.p_holm or ()), list(self.p_bh or ())
        return frame

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": self.metric, "unit": self.unit}

    def _intervals(self, level: float) -> MeanIntervals:
        """Return intervals over clusters of prompts, or over tokens, and the reasons for none."""
        out = np.full((len(self.rows), 2), math.nan)
        why = np.full(len(self.rows), "the head has no match", dtype=object)
        there = ~np.isnan(self.per_prompt).any(1)
        least = 0.0 if self.metric.startswith("patterns") else -1.0
        intervals = mean_intervals(
            self.per_prompt[there], level, clusters=self.clusters, bounds=(least, 1.0)
        )
        out[there], why[there] = intervals
        return MeanIntervals(out, tuple(why))

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        return super()._completed(self._intervals(0.95).in_frame(rows))

    def _bounds_of(self, frame: pd.DataFrame, level: float) -> np.ndarray:
        return self._intervals(level).ends

    def plot(self, k: int = 20) -> go.Figure:
        """Draw the similarities of all heads of A and B; bars of the first rows in large models."""
        from interp.draw.charts import grid

        first = next(iter(self.similarity.values()))
        if len(self.similarity) * max(first.shape) > _MOST:
            return super().plot(k)
        names = self._names()
        whole = np.full(tuple(map(len, names)), math.nan)
        at = [0, 0]
        for part in self.similarity.values():
            whole[at[0] : at[0] + part.shape[0], at[1] : at[1] + part.shape[1]] = part
            at = [at[0] + part.shape[0], at[1] + part.shape[1]]
        hover = [
            [f"{a}, {b}: {whole[i, j]:.3f}" for j, b in enumerate(names[1])]
            for i, a in enumerate(names[0])
        ]
        title = f"{self.metric} of {self.provenance.get('model', 'A and B')}"
        return grid(whole, *names, hover=hover, title=title, unit=self.unit)

    def _names(self) -> tuple[list[str], list[str]]:
        """Return names of the rows and columns of the similarities, group by group."""
        names: tuple[list[str], list[str]] = ([], [])
        for group, part in self.similarity.items():
            for side, count in zip(names, part.shape, strict=True):
                side += [f"{group} head {h}" for h in range(count)]
        return names

    def __repr__(self) -> str:
        significant = sum(p < 0.05 for p in self.p_bh or ())
        whole = "" if self.p_all is None else f"; whole assignment p = {self.p_all:.3g}"
        return (
            f"HeadMatches ({self.provenance.get('model', 'A to B')}, {self.metric}): "
            f"{len(self.rows)} heads, {significant} with p_bh below 0.05{whole}"
        )


present(HeadMatches, text="interp.report.printed.between:matches_text")
