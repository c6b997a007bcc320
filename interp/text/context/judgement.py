"""Precision of each way of finding the sources of an answer, and calibration of its confidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.cache.confidence import (
    bins_of_equal_width,
    confidence_scores,
    source_shares,
)
from interp.core.clusters import cluster_summary
from interp.core.errors import UnknownName
from interp.core.head import Head
from interp.core.intervals import fraction_interval, share_interval
from interp.core.result import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class SourceJudgement(Result):
    """Precision at k of each way on held-out documents; rows are ways.

    k is the number of known sources of a document. The null is a random order of the sentences.
    Intervals of the precision are t intervals over documents, extended to Wilson's interval of a
    share of as many documents: where all documents score alike, their spread says nothing.

    Args:
        ways: the ways, and the baseline `position`.
        precision: precision at k in every held-out document, `[way, document]`.
        random: expected precision of a random order, per document.
        truth: whether each sentence of all held-out documents is a source.
        confidence: stated probability that each sentence is a source, `[way, sentence]`.
        share_points: shares of a document's score at which the calibration is fitted, per way.
        probability_points: the probabilities there.
        heads_used: the chosen heads of the way `heads`, best first.
        documents: names of the held-out documents.
        answered: whether the model gives each answer itself; where it does not, there is no source
            to be found.
        provenance: model, documents and options.
    """

    ways: tuple[str, ...]
    precision: Float[np.ndarray, "way document"]
    random: Float[np.ndarray, " document"]
    truth: Bool[np.ndarray, " sentence"]
    confidence: Float[np.ndarray, "way sentence"]
    share_points: tuple[Float[np.ndarray, " point"], ...]
    probability_points: tuple[Float[np.ndarray, " point"], ...]
    heads_used: tuple[Head, ...]
    documents: tuple[str, ...]
    answered: tuple[bool, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _units = ("metric",)
    _per_row = ("ways", "precision", "confidence", "share_points", "probability_points")

    @property
    def per_prompt(self) -> Float[np.ndarray, "way document"]:  # type: ignore[override]
        """Precision of each way in every held-out document."""
        return self.precision

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        rows = []
        for at, way in enumerate(self.ways):
            found = cluster_summary(self.precision[at][:, None])
            rows.append(
                {
                    "metric": way,
                    "score": float(found.score[0]),
                    "sem": float(found.sem[0]),
                    "n": found.n,
                    "null": float(self.random.mean()),
                    "unit": "precision at k",
                    **confidence_scores(self.confidence[at], self.truth),
                }
            )
        return pd.DataFrame(rows)

    def _bounds_of(self, frame: pd.DataFrame, level: float) -> np.ndarray:
        bounds = super()._bounds_of(frame, level)
        for at, (score, n) in enumerate(zip(frame["score"], frame["n"], strict=True)):
            low, high = fraction_interval(float(score), int(n), level)
            bounds[at] = np.fmin(bounds[at, 0], low), np.fmax(bounds[at, 1], high)
        return bounds

    def reliability(self, way: str, *, bins: int = 5) -> pd.DataFrame:
        """Return the stated confidence and the observed share of sources, in bins of confidence.

        Over the sentences of all held-out documents; the interval of the share is Wilson's.

        Raises:
            UnknownName: the way was not judged.
        """
        import pandas as pd

        p = self.confidence[self._at(way)]
        which = bins_of_equal_width(p, bins)
        rows = []
        for at in np.unique(which):
            mine = which == at
            hits, n = int(self.truth[mine].sum()), int(mine.sum())
            low, high = share_interval(hits, n)
            rows.append(
                {"stated": float(p[mine].mean()), "observed": hits / n, "low": low, "high": high,
                 "sentences": n}
            )  # fmt: skip
        return pd.DataFrame(rows)

    def confident(self, way: str, scores: Float[np.ndarray, " sentence"]) -> np.ndarray:
        """Return the calibrated probability that each sentence of a document is a source.

        Raises:
            UnknownName: the way was not judged.
        """
        at = self._at(way)
        return np.interp(source_shares(scores), self.share_points[at], self.probability_points[at])

    def _at(self, way: str) -> int:
        if way not in self.ways:
            raise UnknownName("way to find sources", way, self.ways)
        return self.ways.index(way)

    def __repr__(self) -> str:
        each = ", ".join(
            f"{w} {x:.2f}" for w, x in zip(self.ways, self.precision.mean(1), strict=True)
        )
        return (
            f"SourceJudgement, precision at k on {len(self.documents)} held-out documents: {each}; "
            f"random order {self.random.mean():.2f}"
        )


def source_precision(
    scores: Float[np.ndarray, " sentence"], sources: Int[np.ndarray, " source"]
) -> float:
    """Return the share of sources among the first k sentences, k the number of sources.

    Of sentences that tie for the last places, the expectation under a random order counts.
    """
    k = len(sources)
    edge = np.sort(scores)[::-1][k - 1]
    above, tied = scores > edge, scores == edge
    truth = np.zeros(len(scores), dtype=bool)
    truth[sources] = True
    sure = int((above & truth).sum())
    part = (k - int(above.sum())) / int(tied.sum())
    return float((sure + part * int((tied & truth).sum())) / k)
