"""Scores of a probe: pairs in the right order, calibration, intervals over documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.rank_statistics import ranks
from interp.core.result import Result
from interp.core.table import HeadTable
from interp.probes.folds import Numbers
from interp.probes.linear import LinearProbe
from interp.probes.saved import HeadProbe

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
BINS = 10
METRIC = "probe_loss_without_head"
_CLIP = 0.25  # documents: how far from 0 and 1 a share is moved before its logit


@dataclass(frozen=True, eq=False, repr=False)
class ProbeResult(Result):
    """A trained probe, its held-out scores, and the heads behind it.

    Rows are heads; the score is the rise of the held-out log loss, nats per item, when the features
    of the head are set to their mean. Errors are over documents.

    Args:
        places: stack, layer and head of every row.
        rise: the rise on every item.
        p: rank of the score among the largest of all heads under each shuffling of the labels;
            None without shufflings.
        clusters: the document of every item.
        scores: held-out scores; `auc_interval` and others are 95 % intervals over documents.
        bins: mean probability, share of the positive class and number of items per bin.
        probe: the probe, trained on all documents.
        held_out: calibrated probability of every item from a probe that has not seen its document.
        about: numbers of items, documents, folds and shufflings.
    """

    places: tuple[tuple[str, int, int], ...] = field(repr=False)
    rise: Float[Array, "head item"] = field(repr=False)
    p: Float[Array, " head"] | None = field(repr=False)
    clusters: tuple[str, ...] = field(repr=False)
    scores: Mapping[str, Any]
    bins: tuple[Mapping[str, float], ...] = field(repr=False)
    probe: HeadProbe = field(repr=False)
    held_out: Float[Array, " item"] = field(repr=False)
    about: Mapping[str, Any]
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _units = ("stack", "layer", "head")
    _per_row = ("places", "rise", "p")
    _holds = (HeadProbe, LinearProbe)

    @property
    def per_prompt(self) -> Float[Array, "head item"]:  # type: ignore[override]
        """Rise of the loss without each head on every item."""
        return self.rise

    @property
    def reliability(self) -> pd.DataFrame:
        """Mean probability, share of the positive class and number of items per bin."""
        import pandas as pd

        return pd.DataFrame(list(self.bins))

    @property
    def table(self) -> HeadTable:
        """The heads as a table of scores, for reports and further analysis."""
        name = str(self.provenance.get("model") or "features")
        made = dict(self.provenance) | {"null": "shuffled labels, largest of all heads"}
        rows = self._rows().to_dict("records")
        made |= {"end": "high"}
        return HeadTable.from_records([{"model": name} | r for r in rows], {(name, METRIC): made})

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame(self.places, columns=list(self._units))
        kept = np.array([[d == c for c in self.clusters] for d in dict.fromkeys(self.clusters)])
        size, sums, mean = kept.sum(1), self.rise @ kept.T, self.rise.mean(1)
        # the error of a mean over documents of different sizes (ratio estimator)
        gaps = (sums - mean[:, None] * size) / size.mean()
        frame = frame.assign(
            metric=METRIC,
            score=mean,
            sem=np.sqrt((gaps**2).sum(1) / (len(size) - 1) / len(size)),
            n=self.rise.shape[1],
            clusters=len(size),
            unit="nats per item",
        )
        return frame if self.p is None else frame.assign(null=0.0, p=self.p)

    def __repr__(self) -> str:
        s, a = self.scores, self.about
        low, high = s["auc_interval"]
        lines = [
            f"{a['features']}: {a['items']} items of {a['documents']} documents, "
            f"{a['folds']} folds",
            f"  auc       {s['auc']:.3f} ({low:.3f} to {high:.3f})"
            + (f", shuffled labels {s['auc_shuffled']:.3f}, p = {s['p']:.3g}" if s["p"] else ""),
            f"  accuracy  {s['accuracy']:.3f} ({s['accuracy_interval'][0]:.3f} to "
            f"{s['accuracy_interval'][1]:.3f}), most common label {s['most_common']:.3f}",
            f"  Brier     {s['brier']:.3f}, before calibration {s['brier_uncalibrated']:.3f}, of a "
            f"constant {s['brier_constant']:.3f}; calibration error {s['calibration_error']:.3f}",
        ]
        if "selectivity" in s:
            lines.append(
                f"  control   accuracy {s['control_accuracy']:.3f}, selectivity "
                f"{s['selectivity']:.3f}"
            )
        return "\n".join(lines)


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
    """Return an interval of a share: jackknife over documents on the logit, Student's t.

    Args:
        share: computes it from a mask of the items that are kept.
        documents: the document of each item.
        level: coverage of the interval.
    """
    from scipy.stats import t as student

    number = int(documents.max()) + 1
    edge = _CLIP / number
    found = share(np.ones(len(documents), dtype=bool))
    if found in (0.0, 1.0):  # all documents agree: as many equal draws of a rarer outcome
        most = ((1 - level) / 2) ** (1 / number)
        return (most, 1.0) if found else (0.0, 1 - most)

    def logit(x: float) -> float:
        x = min(max(x, edge), 1 - edge)
        return math.log(x / (1 - x))

    whole = logit(found)
    left = np.array([share(documents != d) for d in range(number)])
    left = np.array([logit(x) for x in left[~np.isnan(left)]])
    if len(left) < 2:
        return 0.0, 1.0
    error = math.sqrt((len(left) - 1) / len(left) * float(((left - left.mean()) ** 2).sum()))
    reach = float(student.ppf(0.5 + level / 2, len(left) - 1)) * error
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
