"""Result of an evaluation: faithfulness over sizes, beside chance and a known circuit.

Also the figures for how well a ranking of heads recovers a known circuit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from interp.circuits.faithfulness import SizeCurve, faithful
from interp.circuits.result import Circuit
from interp.core.errors import OptionError
from interp.core.rank_statistics import auroc, auroc_interval
from interp.core.statistics import percentile_interval, ratio_intervals
from interp.core.ties import ordered, snapped

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
DRAWS = 1000
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Evaluation(SizeCurve):
    """Figures of one ranking of heads on one task, over the number of active heads.

    The rows are sizes; see `SizeCurve`. `figures` are those of the first `chosen` heads.

    Args:
        circuit: The circuit that was evaluated.
        ablation: Replacement for the output of a head that is not in the circuit.
        sizes: Numbers of active heads, one for each of the shares of all heads.
        per_prompt: The task's value with only the top heads active, `[size, prompt]`; `full` and
            `empty` with all heads and with none.
        random: The mean value of random sets of the same sizes, `[draw, size]`.
        chosen: Number of heads in the circuit.
        inside: The value with only the top `chosen` heads active; `shaped` is its mean for random
            circuits with as many heads in each layer.
        truth: Heads of the known circuit.
        seed: Seed of the random sets and intervals.
        made: Provenance.
        seen: Number of these pairs that the circuit was found on; they make the figures too good.
        clusters: A label per pair, where intervals resample whole clusters.
        dependence: Description of these clusters, or why single pairs are resampled.
        unit: The task's unit.
        partial: Only some of the sizes are kept.
    """

    circuit: Circuit
    ablation: str
    sizes: tuple[int, ...]
    per_prompt: Float[Array, "size prompt"] = field(repr=False)
    full: Float[Array, " prompt"] = field(repr=False)
    empty: Float[Array, " prompt"] = field(repr=False)
    random: Float[Array, "draw size"] = field(repr=False)
    chosen: int
    inside: Float[Array, " prompt"] = field(repr=False)
    shaped: Float[Array, " draw"] = field(repr=False)
    truth: tuple[str, ...] = ()
    seed: int = 0
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    seen: int = 0
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    dependence: str = ""
    unit: str = ""
    partial: bool = False
    _things = "heads"

    @property
    def total(self) -> int:
        """Number of all heads."""
        return max(self.sizes, default=0)

    @property
    def chosen_faithfulness(self) -> float:
        """Faithfulness with only the top `chosen` heads active."""
        return float(faithful(self.inside.mean(), self.full.mean(), self.empty.mean()))

    @property
    def shaped_faithfulness(self) -> Float[Array, " draw"]:
        """Faithfulness of random circuits with the same number of heads in each layer."""
        return faithful(self.shaped, self.full.mean(), self.empty.mean())

    def share_interval(self, values: Float[Array, " prompt"]) -> tuple[float, float]:
        """Return the 95 % interval of a mean as a share of all heads minus none."""
        gap = self.full - self.empty
        [ends] = ratio_intervals(values[None], gap, clusters=self.clusters)
        return float(ends[0]), float(ends[1])

    def against_truth(self) -> dict[str, float]:
        """Compute the AUROC of absolute scores against the known circuit, with its interval."""
        if not self.truth:
            raise OptionError(
                f"no circuit is known for {self.circuit.task}; give its heads as truth="
            )
        heads = self.circuit.head_names
        size = np.abs([self.circuit.largest[self.circuit.nodes.index(h)] for h in heads])
        mask = marked(heads, self.truth)
        low, high = auroc_interval(size, mask, seed=self.seed)
        return {"auroc": auroc(size, mask), "low": low, "high": high}

    def figures(self) -> list[dict[str, Any]]:
        """Return a row per figure: value, 95 % interval, random baseline and description."""
        n = self.per_prompt.shape[1]
        what = f"of the first {self.chosen} heads; random: as many heads in each layer"
        rows: list[dict[str, Any]] = [
            _figure(
                "faithfulness",
                self.chosen_faithfulness,
                *self.share_interval(self.inside - self.empty),
                float(self.shaped_faithfulness.mean()),
                n,
                "; ".join(filter(None, (what, self.dependence))),
            )
        ]
        if self.truth:
            stated = self.against_truth()
            rows.append(
                _figure(
                    "AUROC",
                    stated["auroc"],
                    stated["low"],
                    stated["high"],
                    0.5,
                    n,
                    f"against {' '.join(self.truth)}",
                )
            )
        return [
            row | {"ablation": "" if row["figure"] == "AUROC" else self.ablation} for row in rows
        ]

    def _rows(self) -> pd.DataFrame:
        """Return a table with one row per size."""
        import pandas as pd

        f = self.faithfulness
        gap = self.full.mean() - self.empty.mean()
        drawn = (self.random - self.empty.mean()) / gap
        band = percentile_interval(drawn, axis=0)
        return pd.DataFrame(
            {
                "heads": self.sizes,
                "share": np.array(self.sizes) / len(self.circuit.head_names),
                "value": self.per_prompt.mean(1),
                "faithfulness": f,
                "random": drawn.mean(0),
                "random_low": band[0],
                "random_high": band[1],
                "n": self.per_prompt.shape[1],
                "ablation": self.ablation,
            }
        )

    def __repr__(self) -> str:
        if self.partial:
            return f"Evaluation({self.circuit.method}, {self.ablation}: {self._listed()})"
        alone, beside = self.chosen_faithfulness, self.shaped_faithfulness.mean()
        text = f"the first {self.chosen} heads keep {alone:.2f}, as many others {beside:.2f}"
        if self.seen:
            text = f"{self.seen} of {self.per_prompt.shape[1]} pairs it was found on; {text}"
        if self.truth:
            text += f"; AUROC {self.against_truth()['auroc']:.3f}"
        return f"Evaluation({self.circuit.method}, {self.ablation}: {text})"


def _figure(
    name: str, value: float, low: float, high: float, random: float, n: int, what: str
) -> dict[str, Any]:
    return {
        "figure": name,
        "value": value,
        "low": low,
        "high": high,
        "random": random,
        "n": n,
        "what": what,
    }


def precision_at(score: Float[Array, " head"], truth: Bool[Array, " head"], k: int) -> float:
    """Compute the share of the top k heads that are in the circuit, averaged over ties."""
    score = snapped(score)
    last = score[ordered(score)[:k][-1]]
    sure = score > last
    tied = score == last
    room = k - int(sure.sum())
    return float((truth[sure].sum() + room * truth[tied].mean()) / k)


def authors_f1(score: Float[Array, " head"], truth: Bool[Array, " head"]) -> float:
    """Compute the best harmonic mean of sensitivity and specificity over thresholds.

    O'Neill and Bui's code calls this F1. It is not F1, because it does not contain precision.
    """
    best = 0.0
    for threshold in np.unique(score):
        chosen = score >= threshold
        sensitivity = chosen[truth].mean() if truth.any() else 0.0
        specificity = (~chosen[~truth]).mean() if (~truth).any() else 0.0
        if sensitivity + specificity > 0:
            mean = 2 * sensitivity * specificity / (sensitivity + specificity)
            best = max(best, float(mean))
    return best


def f1(score: Float[Array, " head"], truth: Bool[Array, " head"]) -> float:
    """Compute the best harmonic mean of precision and recall over thresholds."""
    best = 0.0
    for threshold in np.unique(score):
        chosen = score >= threshold
        hits = float((chosen & truth).sum())
        best = max(best, 2 * hits / max(float(chosen.sum() + truth.sum()), 1.0))
    return best


def marked(names: Collection[str], truth: Collection[str]) -> Bool[Array, " head"]:
    """Return a mask of the names that are in the circuit."""
    return np.array([name in set(truth) for name in names])
