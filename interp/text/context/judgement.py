"""Precision of each way of finding the sources of an answer, and calibration of its confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.cache.confidence import (
    bins_of_equal_width,
    confidence_scores,
    source_shares,
)
from interp.core.clusters import score_columns
from interp.core.errors import UnknownName
from interp.core.intervals import fraction_interval, share_interval
from interp.core.long_rows import t_bounds
from interp.core.presenter import present
from interp.core.result_rows import ResultRows

if TYPE_CHECKING:
    import pandas as pd


def judgement_rows(
    ways: Sequence[str],
    precision: Float[np.ndarray, "way document"],
    random: Float[np.ndarray, " document"],
    confidence: Float[np.ndarray, "way sentence"],
    points: Sequence[tuple[np.ndarray, np.ndarray]],
    facts: Mapping[str, Any],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per way; see `judge_sources` for the columns and facts."""
    stated = [confidence_scores(x, facts["truth"]) for x in confidence]
    means = score_columns(precision)
    del means["clusters"]
    columns = (
        {"metric": list(ways)} | means | {"null": float(random.mean()), "unit": "precision at k"}
    )
    columns |= {name: [x[name] for x in stated] for name in (stated[0] if stated else ())}
    shares, probabilities = (tuple(x[i] for x in points) for i in (0, 1))
    arrays = {"confidence": confidence, "share_points": shares, "probability_points": probabilities}
    return ResultRows(
        "SourceJudgement",
        columns,
        ("metric",),
        made,
        {"random": random, **facts},
        precision,
        arrays=arrays,
        interval_by="own",
    )


def bounds_of_precision(found: ResultRows, level: float) -> np.ndarray:
    """Return t intervals, extended to Wilson's interval of a share of as many documents.

    Where all documents score alike, their spread says nothing. No precision is outside of 0 and 1.
    """
    bounds = t_bounds(found.wide(), level)
    for at, (score, n) in enumerate(zip(found.score, found.n, strict=True)):
        low, high = fraction_interval(float(score), int(n), level)
        bounds[at] = np.fmin(bounds[at, 0], low), np.fmax(bounds[at, 1], high)
    return bounds.clip(0, 1)


def stated_and_observed(judged: ResultRows, method: str, *, bins: int = 5) -> pd.DataFrame:
    """Return the stated confidence and the observed share of sources, in bins of confidence.

    Over the sentences of all held-out documents; the interval of the share is Wilson's.

    Args:
        judged: result of `judge_sources`.
        method: one of its ways.
        bins: number of bins of equal width.

    Raises:
        UnknownName: the way was not judged.
    """
    import pandas as pd

    p = judged.confidence[_at(judged, method)]
    which = bins_of_equal_width(p, bins)
    rows = []
    for at in np.unique(which):
        mine = which == at
        hits, n = int(judged.truth[mine].sum()), int(mine.sum())
        low, high = share_interval(hits, n)
        rows.append(
            {
                "stated": float(p[mine].mean()),
                "observed": hits / n,
                "low": low,
                "high": high,
                "sentences": n,
            }
        )
    return pd.DataFrame(rows)


def calibrated(judged: ResultRows, way: str, scores: Float[np.ndarray, " sentence"]) -> np.ndarray:
    """Return the probability that each sentence of a document is a source, from scores of a way."""
    at = _at(judged, way)
    return np.interp(source_shares(scores), judged.share_points[at], judged.probability_points[at])


def _at(judged: ResultRows, way: str) -> int:
    ways = judged.columns["metric"]
    if way not in ways:
        raise UnknownName("way to find sources", way, ways)
    return ways.index(way)


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


def precision_at_k_summary(found: ResultRows) -> str:
    """Return the mean precision of each way of finding sources, beside a random order."""
    ways = zip(found.metric, found.per_prompt.mean(1), strict=True)
    return (
        f"SourceJudgement, precision at k on {found.per_prompt.shape[1]} held-out documents: "
        f"{', '.join(f'{way} {x:.2f}' for way, x in ways)}; random order {found.random.mean():.2f}"
    )


present("SourceJudgement", summary=precision_at_k_summary, bounds=bounds_of_precision)
