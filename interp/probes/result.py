"""Scores of a probe: pairs in the right order, calibration, intervals over documents."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.files import write_atomically
from interp.core.statistics import ranks
from interp.core.table import HeadTable
from interp.probes.folds import Numbers
from interp.probes.saved import HeadProbe

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
BINS = 10
_CLIP = 0.25  # documents: how far from 0 and 1 a share is moved before its logit


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """A trained probe, its held-out scores, and the heads behind it.

    Args:
        table: the rise of the held-out log loss without each head.
        scores: held-out scores; `auc_interval` and others are 95 % intervals over documents.
        reliability: mean probability, share of the positive class and number of items per bin.
        probe: the probe, trained on all documents.
        held_out: calibrated probability of every item from a probe that has not seen its document.
        about: numbers of items, documents, folds and shufflings.
    """

    table: HeadTable
    scores: Mapping[str, Any]
    reliability: pd.DataFrame
    probe: HeadProbe
    held_out: Float[Array, " item"]
    about: Mapping[str, Any]

    def to_pandas(self) -> pd.DataFrame:
        """Return the heads as rows; see `HeadTable`."""
        return self.table.to_pandas()

    def top(self, k: int = 5) -> HeadTable:
        """Return the heads without which the loss rises most."""
        return self.table.top(k)

    def save(self, path: str | Path) -> None:
        """Save heads and scores as JSON; the probe itself is saved by `probe.save`.

        Raises:
            StoreError: the file cannot be written.
        """
        rows = {"about": dict(self.about), "scores": dict(self.scores)}
        rows |= {"reliability": self.reliability.to_dict("records")}
        rows |= {"heads": json.loads(self.table.to_json())}
        write_atomically(Path(path), json.dumps(rows, indent=1).encode())

    def __str__(self) -> str:
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


def reliability(probability: Float[Array, " item"], y: Numbers) -> tuple[pd.DataFrame, float]:
    """Return bins of equally many items, and the mean distance of probability and share in them."""
    import pandas as pd

    order = np.argsort(probability, kind="stable")
    rows = []
    for part in np.array_split(order, min(BINS, len(order))):
        rows.append(
            {"probability": probability[part].mean(), "share": y[part].mean(), "n": len(part)}
        )
    frame = pd.DataFrame(rows)
    gaps = [abs(row["probability"] - row["share"]) * row["n"] for row in rows]
    return frame, sum(gaps) / len(y)
