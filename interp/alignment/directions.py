"""Agreement of the alignments of two models that translate in opposite directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.alignment.links import alignment_error_rate, drawn_error_rates, share_of
from interp.alignment.result import HeadAlignments, interval_of_draws
from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.result_rows import ResultRows

Array = np.ndarray
KINDS = ("forward", "backward", "intersection", "union")


def direction_rows(
    counts: Int[Array, "row sentence 4"],
    null: Float[Array, " row"],
    agreement: float,
    made: Mapping[str, Any],
    kinds: Sequence[str] = KINDS,
) -> ResultRows:
    """Return the error rates of counted links; see `both_directions` for the columns."""
    links, sure, in_sure, in_possible = counts.sum(1).T
    drawn = drawn_error_rates(counts)
    low, high = interval_of_draws(drawn, 0.95, counts.shape[1]).T
    columns = {
        "alignment": list(kinds),
        "metric": "alignment_error_rate",
        "score": alignment_error_rate(links, sure, in_sure, in_possible),
        "sem": drawn.std(0, ddof=1),
        "low": low,
        "high": high,
        "null": null,
        "n": counts.shape[1],
        "unit": "share of links",
        "precision": share_of(in_possible, links),
        "recall": share_of(in_sure, sure),
    }
    facts = {"agreement": agreement}
    each = alignment_error_rate(*np.moveaxis(counts, -1, 0))
    return ResultRows(
        "BothDirections",
        columns,
        ("alignment",),
        made,
        facts,
        each,
        arrays={"counts": counts},
        by="lowest",
        interval_by="own",
    )


def bounds_of_rates(found: ResultRows, level: float) -> Float[Array, "row 2"]:
    """Return the interval of each error rate over draws of sentences, widened where few."""
    return interval_of_draws(drawn_error_rates(found.counts), level, found.counts.shape[1])


def both_directions(forward: HeadAlignments, backward: HeadAlignments) -> ResultRows:
    """Combine one head of a model with one of a model of the opposite direction.

    Of each result the head that was chosen on the other sentences is taken; give `result.top(1)` to
    take another. Links common to both are usually more precise, and those of either find more.

    Args:
        forward: `word_alignment` of the one model.
        backward: `word_alignment` of the other model, on `SentencePair.swapped` of the same pairs
            with the same seed.

    Returns:
        One row per alignment (forward, backward, intersection, union) with its error rate,
        precision and recall; null is that of single directions against the null gold of their
        results. Fact: agreement, twice the common links over the links of both, 1 if the alignments
        are the same. By row: counts, `[row, sentence, 4]`, the links, sure gold links, links that
        are sure, and that are possible. Intervals are over draws of sentences.

    Raises:
        OptionError: the two were not judged on the same pairs.
    """
    same = forward.judged == backward.judged and len(forward.gold) == len(backward.gold)
    turned = [np.array(sorted(g[:, [1, 0, 2]].tolist())).reshape(-1, 3) for g in backward.gold]
    if not same or not all(map(np.array_equal, forward.gold, turned)):
        raise OptionError(
            "the results were not judged on the same pairs in opposite directions; align "
            "[pair.swapped for pair in pairs] with the same seed and select"
        )
    one, other = forward.best_head(), backward.best_head()
    counts, common, every = [], 0, 0
    for at, gold in enumerate(forward.gold):
        sure = {(s, t) for s, t, is_sure in gold.tolist() if is_sure}
        possible = {(s, t) for s, t, _ in gold.tolist()}
        ahead = {(s, t) for t, s in enumerate(one.links[0, at].tolist()) if s >= 0}
        back = {(s, t) for s, t in enumerate(other.links[0, at].tolist()) if t >= 0}
        sets = (ahead, back, ahead & back, ahead | back)
        counts.append([[len(a), len(sure), len(a & sure), len(a & possible)] for a in sets])
        common, every = common + 2 * len(ahead & back), every + len(ahead) + len(back)
    sources = {
        name: {"model_id": x.provenance.get("model_id"), "head": str(x.of[0]), "rows": x.rows[0]}
        for name, x in (("forward", one), ("backward", other))
    }
    return direction_rows(
        np.array(counts, np.int64).swapaxes(0, 1),
        np.array([one.null[0], other.null[0], np.nan, np.nan]),
        common / every if every else np.nan,
        {**one.provenance, "made_by": "interp.alignment.both_directions", "of": sources},
    )


def both_directions_summary(found: ResultRows) -> str:
    """Return the error rate of each alignment."""
    text = ", ".join(f"{k} {x:.3f}" for k, x in zip(found.alignment, found.score, strict=True))
    return f"Alignment error rate in two directions: {text}; agreement {found.agreement:.3f}"


present("BothDirections", summary=both_directions_summary, bounds=bounds_of_rates)
