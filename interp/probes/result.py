"""Scores of a probe: pairs in the right order, calibration, intervals over documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.clusters import jackknife_error
from interp.core.intervals import half_width
from interp.core.presenter import present
from interp.core.rank_statistics import ranks
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.table import HeadTable
from interp.core.ties import ranked
from interp.draw.parts import FoundPart, between, result_part
from interp.probes.folds import Numbers

Array = np.ndarray
BINS = 10
METRIC = "probe_loss_without_head"
_CLIP = 0.25  # documents: how far from 0 and 1 a share is moved before its logit


def probe_rows(
    heads: Sequence[tuple[str, int, int]],
    rise: Float[Array, "head item"],
    p: Float[Array, " head"] | None,
    documents: tuple[str, ...],
    facts: Mapping[str, Any],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per head; see `train_probe` for the columns and facts."""
    units = ("stack", "layer", "head")
    membership = np.array([[d == c for c in documents] for d in dict.fromkeys(documents)])
    size, sums, mean = membership.sum(1), rise @ membership.T, rise.mean(1)
    # the error of a mean over documents of different sizes (ratio estimator)
    gaps = (sums - mean[:, None] * size) / size.mean()
    columns = dict(zip(units, zip(*heads, strict=True), strict=True)) | {
        "metric": METRIC,
        "score": mean,
        "sem": standard_error(gaps),
        "n": rise.shape[1],
        "clusters": len(size),
        "unit": "nats per item",
    }
    columns |= {} if p is None else {"null": 0.0, "p": p}
    return ResultRows("ProbeResult", columns, units, made, facts, rise, clusters=documents)


def probe_table(found: ResultRows) -> HeadTable:
    """Return the heads of a probe as a table of scores, for reports and further analysis."""
    name = str(found.provenance.get("model") or "features")
    provenance = dict(found.provenance) | {
        "null": "shuffled labels, largest of all heads",
        "end": "high",
    }
    rows = found.wide().to_dict("records")
    return HeadTable.from_records([{"model": name} | r for r in rows], {(name, METRIC): provenance})


def auc_by_fold(score: Float[Array, " item"], y: Numbers, fold: Numbers) -> float:
    """Return the share of pairs of both classes inside a fold that are in order; ties are half.

    Scores of different folds come from different probes and are not compared. NaN without a pair.
    """
    won = pairs = 0.0
    for each in np.unique(fold):
        here = fold == each
        positive = y[here] == 1
        n, m = int(positive.sum()), int((~positive).sum())
        if n and m:
            placed = ranks(score[here])
            won += float(placed[positive].sum()) - n * (n + 1) / 2
            pairs += n * m
    return won / pairs if pairs else math.nan


def interval_over_documents(
    share: Callable[[Array], float], documents: Numbers, level: float = 0.95
) -> tuple[float, float]:
    """Return an interval of a share: jackknife over documents on the logit, Student's t."""
    number = int(documents.max()) + 1
    edge = _CLIP / number
    observed = share(np.ones(len(documents), dtype=bool))
    if observed in (0.0, 1.0):  # all documents agree: as many equal draws of a rarer outcome
        most = ((1 - level) / 2) ** (1 / number)
        return (most, 1.0) if observed else (0.0, 1 - most)

    def logit(x: float) -> float:
        x = min(max(x, edge), 1 - edge)
        return math.log(x / (1 - x))

    whole = logit(observed)
    left = np.array([share(documents != d) for d in range(number)])
    left = np.array([logit(x) for x in left[~np.isnan(left)]])
    if len(left) < 2:
        return 0.0, 1.0
    reach = float(half_width([(jackknife_error(left), len(left) - 1)], level))
    return 1 / (1 + math.exp(-(whole - reach))), 1 / (1 + math.exp(-(whole + reach)))


def reliability_bins(
    probability: Float[Array, " item"], y: Numbers
) -> tuple[tuple[Mapping[str, float], ...], float]:
    """Return bins of equally many items, and the mean distance of probability and share in them."""
    order = np.argsort(probability, kind="stable")
    rows = tuple(
        {
            "probability": float(probability[part].mean()),
            "share": float(y[part].mean()),
            "n": len(part),
        }
        for part in np.array_split(order, min(BINS, len(order)))
    )
    gaps = [abs(row["probability"] - row["share"]) * row["n"] for row in rows]
    return rows, sum(gaps) / len(y)


def probe_summary(found: ResultRows) -> str:
    """Return the held-out scores of a probe, with their intervals and baselines."""
    s, a = found.scores, found.about
    low, high = s["auc_interval"]
    lines = [
        f"{a['features']}: {a['items']} items of {a['documents']} documents, {a['folds']} folds",
        f"  auc       {s['auc']:.3f} ({low:.3f} to {high:.3f})"
        + (f", shuffled labels {s['auc_shuffled']:.3f}, p = {s['p']:.3g}" if s["p"] else ""),
        f"  accuracy  {s['accuracy']:.3f} ({s['accuracy_interval'][0]:.3f} to "
        f"{s['accuracy_interval'][1]:.3f}), most common label {s['most_common']:.3f}",
        f"  Brier     {s['brier']:.3f}, before calibration {s['brier_uncalibrated']:.3f}, of a "
        f"constant {s['brier_constant']:.3f}; calibration error {s['calibration_error']:.3f}",
    ]
    if "selectivity" in s:
        lines.append(
            f"  control   accuracy {s['control_accuracy']:.3f}, selectivity {s['selectivity']:.3f}"
        )
    return "\n".join(lines)


def probe_part(found: ResultRows) -> FoundPart:
    """Return a linear probe on heads: its held-out scores, and what is lost without each head."""
    scores, about = found.scores, found.about
    frame: Any = found.to_pandas()
    low, high = scores["auc_interval"]
    p = scores.get("p")
    text = (
        f"A linear probe of {about['features']} on {about['items']} items of "
        f"{about['documents']} documents puts {scores['auc']:.3f} of the pairs in order on "
        f"held-out documents{between(low, high)}"
    )
    shuffled = scores.get("auc_shuffled")
    text += f"; {shuffled:.3f} with shuffled labels, p = {p:.3g}." if p and shuffled else "."
    if "selectivity" in scores:
        text += f" Selectivity against a control task: {scores['selectivity']:.3f}."
    several = frame["stack"].nunique() > 1
    notes, heads = {}, []
    order = ranked(frame, "score")
    for row in order.to_dict("records"):
        label = f"L{row['layer']}H{row['head']}"
        label = f"{row['stack']} {label}" if several else label
        span = between(row["low"], row["high"])
        notes[label] = (
            f"Probe of {about['features']}: without this head the held-out log loss rises by "
            f"{row['score']:+.3g}{span} {row['unit']}"
        )
        if row["low"] == row["low"] and row["low"] > 0 and len(heads) < 4:
            heads.append(label)
    title = f"Probe of {about['features']}"
    return result_part(found, "probe", title, text, order, heads=heads, notes=notes)


present(
    "ProbeResult",
    summary=probe_summary,
    part=probe_part,
    holds=("interp.probes.saved:HeadProbe", "interp.probes.linear:LinearProbe"),
)
