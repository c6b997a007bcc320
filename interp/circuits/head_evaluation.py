"""Result of an evaluation: faithfulness over sizes, completeness, minimality and chance.

Also the figures for how well a ranking of heads recovers a known circuit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from interp.circuits.faithfulness import SizeCurve, area, faithful
from interp.circuits.result import Circuit
from interp.core.clusters import numbered
from interp.core.errors import OptionError
from interp.core.rank_statistics import auroc, auroc_interval
from interp.core.statistics import percentile_interval, ratio_intervals, redraw, tails_of
from interp.core.ties import ordered, snapped

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
DRAWS = 1000
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Evaluation(SizeCurve):
    """Figures of one ranking of heads on one task, over the number of active heads.

    The rows are sizes; see `SizeCurve`. `figures` are those of the whole ranking.

    Args:
        circuit: The circuit that was evaluated.
        ablation: Replacement for the output of a head that is not in the circuit.
        sizes: Numbers of active heads, one for each of the shares of all heads.
        per_prompt: The task's value with only the top heads active, `[size, prompt]`; `full` and
            `empty` with all heads and with none.
        random: The mean value of random sets of the same sizes, `[draw, size]`.
        chosen: Number of heads in the circuit for completeness and minimality.
        inside: The value with only the top `chosen` heads active; `shaped` is its mean for random
            circuits with as many heads in each layer.
        without: The value with the top `chosen` heads ablated and all others active.
        one_out: Loss of the circuit when one of its heads is removed, in the task's unit.
        truth: Heads of the known circuit.
        seed: Seed of the random sets and intervals.
        made: Provenance.
        seen: Number of these pairs that the circuit was found on; they make the figures too good.
        found_on: `cmd`, `cpr` and `n` on the pairs that the circuit was found on, if given.
        clusters: A label per pair, where intervals resample whole clusters.
        dependence: Description of these clusters, or why single pairs are resampled.
        unit: The task's unit.
        partial: Only some of the sizes are kept.
        one_out_values: The values per pair behind `one_out`.
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
    without: Float[Array, " prompt"] = field(repr=False)
    one_out: Mapping[str, float] = field(default_factory=dict)
    truth: tuple[str, ...] = ()
    seed: int = 0
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    seen: int = 0
    found_on: Mapping[str, float] | None = None
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    dependence: str = ""
    unit: str = ""
    partial: bool = False
    one_out_values: Float[Array, "head prompt"] | None = field(default=None, repr=False)
    _things = "heads"

    @property
    def total(self) -> int:
        """Number of all heads."""
        return max(self.sizes, default=0)

    def area_interval(self, what: str = "cmd") -> tuple[float, float]:
        """Return the 95 % bootstrap confidence interval of `cmd` or `cpr` over pairs.

        Whole clusters are resampled where the pairs have at least 4 templates; see `dependence`.
        """
        if what not in ("cmd", "cpr"):
            raise OptionError(f"{what!r} has no interval; ask for cmd or cpr")
        self._area(self.faithfulness, 0.0)  # refuses a part of the curve
        rng = np.random.default_rng([self.seed, 5])
        which, areas = numbered(self.per_prompt.shape[1], self.clusters), []
        n = int(which.max()) + 1
        pairs = [np.flatnonzero(which == c) for c in range(n)]
        for drawn in redraw(n, DRAWS, rng):
            some = np.concatenate([pairs[c] for c in drawn])
            f = faithful(
                self.per_prompt[:, some].mean(1), self.full[some].mean(), self.empty[some].mean()
            )
            end = (np.abs(1 - f), 1.0) if what == "cmd" else (f, 0.0)
            areas.append(area(self.sizes, *end))
        low, high = percentile_interval(np.array(areas), tails_of(LEVEL))
        return float(low), float(high)

    @property
    def chosen_faithfulness(self) -> float:
        """Faithfulness with only the top `chosen` heads active."""
        return float(faithful(self.inside.mean(), self.full.mean(), self.empty.mean()))

    @property
    def shaped_faithfulness(self) -> Float[Array, " draw"]:
        """Faithfulness of random circuits with the same number of heads in each layer."""
        return faithful(self.shaped, self.full.mean(), self.empty.mean())

    @property
    def completeness(self) -> float:
        """Share of the behaviour that is lost when the circuit is ablated: 1 if nothing is left."""
        gap = self.full.mean() - self.empty.mean()
        return float((self.full.mean() - self.without.mean()) / gap)

    def share_interval(self, values: Float[Array, " prompt"]) -> tuple[float, float]:
        """Return the 95 % interval of a mean as a share of all heads minus none."""
        gap = self.full - self.empty
        [ends] = ratio_intervals(values[None], gap, clusters=self.clusters)
        return float(ends[0]), float(ends[1])

    def minimality(self) -> list[dict[str, Any]]:
        """Return what the circuit loses without each head, as a share of the gap, with interval."""
        gap = float((self.full - self.empty).mean())
        values = self.one_out_values
        rows = []
        for i, (head, lost) in enumerate(self.one_out.items()):
            ends = (math.nan, math.nan) if values is None else self.share_interval(values[i])
            rows.append({"head": head, "lost": lost / gap, "low": ends[0], "high": ends[1]})
        return rows

    @property
    def unneeded(self) -> tuple[str, ...]:
        """Heads that the circuit can lose without getting worse; a minimal circuit has none."""
        gap = abs(float(self.full.mean() - self.empty.mean()))
        sign = 1 if self.full.mean() >= self.empty.mean() else -1
        return tuple(h for h, lost in self.one_out.items() if sign * lost < 0.01 * gap)

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

    @property
    def stability(self) -> tuple[float, float, float] | None:
        """Mean Jaccard overlap of the top `chosen` heads over resampled pairs, and 95 % interval.

        None where it is not known, as for a method with one score for all pairs.
        """
        return self.circuit.stability(self.chosen)

    def figures(self) -> list[dict[str, Any]]:
        """Return a row per figure: value, 95 % interval, random baseline and description."""
        drawn, n = self.random_cmd, self.per_prompt.shape[1]
        low, high = self.area_interval()
        what = "; ".join(filter(None, ("0 is best, over sizes", self.dependence)))
        rows: list[dict[str, Any]] = [
            _figure("CMD", self.cmd, low, high, float(drawn.mean()), n, what)
        ]
        low, high = self.area_interval("cpr")
        rows += [
            _figure("CPR", self.cpr, low, high, math.nan, n, "over sizes, without a bound"),
            _figure(
                "faithfulness",
                self.chosen_faithfulness,
                *self.share_interval(self.inside - self.empty),
                float(self.shaped_faithfulness.mean()),
                n,
                f"of the first {self.chosen} heads; random: as many heads in each layer",
            ),
            _figure(
                "completeness",
                self.completeness,
                *self.share_interval(self.full - self.without),
                math.nan,
                n,
                f"of the first {self.chosen} heads; 1 is best",
            ),
            _figure(
                "not needed",
                len(self.unneeded),
                math.nan,
                math.nan,
                math.nan,
                n,
                " ".join(self.unneeded) or f"of the first {self.chosen} heads",
            ),
        ]
        if self.stability is not None:
            columns = next(r["drawn"] for r in self.circuit.tables["stability"])
            what = f"of the first {self.chosen} heads over draws of {columns}"
            rows.append(_figure("Jaccard", *self.stability, math.nan, self.circuit.n, what))
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
        if self.found_on is not None:
            optimistic = self.found_on
            what = "on the pairs it was found on, which is optimistic"
            rows[1:1] = [
                _figure(
                    "CMD, found on",
                    optimistic["cmd"],
                    math.nan,
                    math.nan,
                    math.nan,
                    int(optimistic["n"]),
                    what,
                )
            ]
        of_ranking = ("Jaccard", "AUROC")  # figures that need no forward passes
        return [
            row | {"ablation": "" if row["figure"] in of_ranking else self.ablation} for row in rows
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
        low, high = self.area_interval()
        text = f"CMD {self.cmd:.3f} [{low:.3f}, {high:.3f}], random {self.random_cmd.mean():.3f}"
        if self.seen:
            text = f"{self.seen} of {self.per_prompt.shape[1]} pairs it was found on; {text}"
        text += f"; CPR {self.cpr:.3f}"
        text += f"; completeness of {self.chosen} heads {self.completeness:.2f}"
        if self.stability is not None:
            text += f"; Jaccard {self.stability[0]:.2f}"
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
