"""Evaluation of a circuit of heads: faithfulness, completeness, minimality, stability and chance.

Every figure is measured by running the model with some heads active and the others ablated, and
names that ablation. Only heads are ablated: MLPs and embeddings stay intact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.causal.game.game import Game, Progress
from interp.circuits.contrast import ContrastTask, hashes
from interp.circuits.methods._ranking import marked
from interp.circuits.result import Circuit
from interp.core.clusters import numbered
from interp.core.display import Displayed
from interp.core.errors import OptionError
from interp.core.statistics import auroc, auroc_interval, percentile_interval, redraw, tails_of
from interp.core.steps import finishing
from interp.model.given import takes_model

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.model.model import Model

Array = np.ndarray
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
DRAWS = 1000
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Evaluation(Displayed):
    """Figures of one ranking of heads on one task.

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

    @property
    def faithfulness(self) -> Float[Array, " size"]:
        """Faithfulness: 0 with no heads, 1 with all (Mueller et al. 2025, arXiv 2504.13151)."""
        return faithful(self.per_prompt.mean(1), self.full.mean(), self.empty.mean())

    @property
    def cmd(self) -> float:
        """Area between faithfulness and 1 over the share of heads, by trapezoids; 0 is best."""
        return area(self.sizes, np.abs(1 - self.faithfulness), 1.0)

    @property
    def cpr(self) -> float:
        """Area under faithfulness; heads that hurt the task can make it exceed 1."""
        return area(self.sizes, self.faithfulness, 0.0)

    def interval(self, what: str = "cmd") -> tuple[float, float]:
        """Return the 95 % bootstrap confidence interval of `cmd` or `cpr` over pairs.

        Whole clusters are resampled where the pairs have at least 4 templates; see `dependence`.

        Raises:
            OptionError: `what` is neither "cmd" nor "cpr".
        """
        if what not in ("cmd", "cpr"):
            raise OptionError(f"{what!r} has no interval; ask for cmd or cpr")
        rng = np.random.default_rng([self.seed, 5])
        which, found = numbered(self.per_prompt.shape[1], self.clusters), []
        n = int(which.max()) + 1
        pairs = [np.flatnonzero(which == c) for c in range(n)]
        for drawn in redraw(n, DRAWS, rng):
            some = np.concatenate([pairs[c] for c in drawn])
            f = faithful(
                self.per_prompt[:, some].mean(1), self.full[some].mean(), self.empty[some].mean()
            )
            end = (np.abs(1 - f), 1.0) if what == "cmd" else (f, 0.0)
            found.append(area(self.sizes, *end))
        low, high = percentile_interval(np.array(found), tails_of(LEVEL))
        return float(low), float(high)

    @property
    def random_cmd(self) -> Float[Array, " draw"]:
        """`cmd` of random orders of heads: the baseline of the ranking."""
        found = [faithful(row, self.full.mean(), self.empty.mean()) for row in self.random]
        return np.array([area(self.sizes, np.abs(1 - f), 1.0) for f in found])

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

    @property
    def unneeded(self) -> tuple[str, ...]:
        """Heads that the circuit can lose without getting worse; a minimal circuit has none."""
        gap = abs(float(self.full.mean() - self.empty.mean()))
        sign = 1 if self.full.mean() >= self.empty.mean() else -1
        return tuple(h for h, lost in self.one_out.items() if sign * lost < 0.01 * gap)

    def against_truth(self) -> dict[str, float]:
        """Compute the AUROC of absolute scores against the known circuit, with its interval.

        Raises:
            OptionError: The circuit is not known.
        """
        if not self.truth:
            raise OptionError(
                f"no circuit is known for {self.circuit.task}; give its heads as truth="
            )
        heads = self.circuit.heads
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
        low, high = self.interval()
        what = "; ".join(filter(None, ("0 is best, over sizes", self.dependence)))
        rows: list[dict[str, Any]] = [
            _figure("CMD", self.cmd, low, high, float(drawn.mean()), n, what)
        ]
        low, high = self.interval("cpr")
        rows += [
            _figure("CPR", self.cpr, low, high, math.nan, n, "over sizes, without a bound"),
            _figure("faithfulness", self.chosen_faithfulness, math.nan, math.nan,
                    float(self.shaped_faithfulness.mean()), n,
                    f"of the first {self.chosen} heads; random: as many heads in each layer"),
            _figure("completeness", self.completeness, math.nan, math.nan, math.nan, n,
                    f"of the first {self.chosen} heads; 1 is best"),
            _figure("not needed", len(self.unneeded), math.nan, math.nan, math.nan, n,
                    " ".join(self.unneeded) or f"of the first {self.chosen} heads"),
        ]  # fmt: skip
        if self.stability is not None:
            columns = next(r["drawn"] for r in self.circuit.tables["stability"])
            what = f"of the first {self.chosen} heads over draws of {columns}"
            rows.append(_figure("Jaccard", *self.stability, math.nan, self.circuit.n, what))
        if self.truth:
            told = self.against_truth()
            rows.append(_figure("AUROC", told["auroc"], told["low"], told["high"], 0.5, n,
                                f"against {' '.join(self.truth)}"))  # fmt: skip
        if self.found_on is not None:
            own = self.found_on
            what = "on the pairs it was found on, which is optimistic"
            rows[1:1] = [_figure("CMD, found on", own["cmd"], math.nan, math.nan, math.nan,
                                 int(own["n"]), what)]  # fmt: skip
        of_ranking = ("Jaccard", "AUROC")  # figures that need no forward passes
        return [
            row | {"ablation": "" if row["figure"] in of_ranking else self.ablation} for row in rows
        ]

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with one row per size."""
        import pandas as pd

        f = self.faithfulness
        gap = self.full.mean() - self.empty.mean()
        drawn = (self.random - self.empty.mean()) / gap
        band = percentile_interval(drawn, axis=0)
        return pd.DataFrame(
            {
                "heads": self.sizes, "share": np.array(self.sizes) / len(self.circuit.heads),
                "value": self.per_prompt.mean(1), "faithfulness": f,
                "random": drawn.mean(0), "random_low": band[0], "random_high": band[1],
                "n": self.per_prompt.shape[1], "ablation": self.ablation,
            }
        )  # fmt: skip

    def plot(self) -> go.Figure:
        """Plot faithfulness over the number of heads, with the band of random orders."""
        from interp.draw.curve_picture import curve

        title = f"{self.circuit.task}: the first heads of {self.circuit.method}"
        return curve(self.to_pandas(), "heads", title)

    def __repr__(self) -> str:
        low, high = self.interval()
        told = f"CMD {self.cmd:.3f} [{low:.3f}, {high:.3f}], random {self.random_cmd.mean():.3f}"
        if self.seen:
            told = f"{self.seen} of {self.per_prompt.shape[1]} pairs it was found on; {told}"
        told += f"; CPR {self.cpr:.3f}"
        told += f"; completeness of {self.chosen} heads {self.completeness:.2f}"
        if self.stability is not None:
            told += f"; Jaccard {self.stability[0]:.2f}"
        if self.truth:
            told += f"; AUROC {self.against_truth()['auroc']:.3f}"
        return f"Evaluation({self.circuit.method}, {self.ablation}: {told})"


@takes_model
@finishing()
def evaluate(
    model: Model,
    circuit: Circuit,
    task: ContrastTask,
    *,
    ablation: str = "corrupted",
    k: int | None = None,
    truth: Sequence[str] | None = None,
    n_random: int = 20,
    seed: int = 0,
    same_weights: bool = True,
    found_on: ContrastTask | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Evaluation:
    """Measure a circuit of heads on a task; use other pairs than those it was found on.

    `seen` of the result counts the pairs that are the same.

    Args:
        model: The model that the circuit was found in.
        circuit: The circuit.
        task: Pairs of prompts to measure it on.
        ablation: `corrupted` replaces a head's output by its output on the corrupted prompt of the
            pair; or a kind of `interp.causal.game.replacement.KINDS`.
        k: Number of heads for completeness and minimality; by default as many as the known circuit
            has, or a tenth of all heads (three at least).
        truth: Heads of the known circuit; the task's by default.
        n_random: Number of random orders of all heads, and of random circuits of the same shape.
        seed: Seed of the random orders and circuits.
        same_weights: Refuse a circuit that was found on other weights of the same shape.
        found_on: The pairs that the circuit was found on, to report the ranking's CMD and CPR there
            too.
        progress: Called with the name of the current work, how much is done and how much there is.
        **options: Options of `interp.causal.Game`.

    Raises:
        OptionError: The circuit is of another model, or the heads make no difference to the task.

    Unit: CMD and CPR: shares of the behaviour over sizes.

    Cost: One forward pass per size and random order.

    Null: random orders of the heads.

    Not for: the pairs that the circuit was found on. CPR has no upper end: never report it alone.

    Reference: Mueller et al. 2025, "MIB" (arXiv 2504.13151)
    """
    circuit.require(model, same_weights=same_weights)
    labels = list(circuit.heads)
    every = [str(h) for h in model.heads()]
    if not set(labels) <= set(every):
        odd = sorted(set(labels) - set(every))
        raise OptionError(
            f"the circuit is of {circuit.model} ({circuit.n_layers} layers of {circuit.n_heads}"
            f" heads); {model.name} has no {', '.join(odd[:3])}"
        )
    known = [h for heads in task.truth.values() for h in heads] if truth is None else list(truth)
    kind = "resample" if ablation == "corrupted" else ablation
    game = Game(model, task.task, kind=kind, seed=seed, **options)
    index = {label: i for i, label in enumerate(game.players.labels)}
    ranked = [h for h in circuit.ranking if h in index] + [h for h in every if h not in labels]
    n = len(every)
    sizes = tuple(sorted({max(1, round(share * n)) for share in SHARES}))
    chosen = max(1, min(n, k or len(known) or max(3, round(n / 10))))
    rng = np.random.default_rng([seed, 3])
    orders = [rng.permutation(n) for _ in range(n_random)]

    def gates(heads: Sequence[str]) -> Array:
        row = np.zeros(n)
        row[[index[h] for h in heads]] = 1
        return row

    rows = [gates(every), gates([]), *(gates(ranked[:size]) for size in sizes)]
    rows.append(1 - gates(ranked[:chosen]))
    rows += [gates([h for h in ranked[:chosen] if h != out]) for out in ranked[:chosen]]
    at = len(rows)
    rows += [gates([every[i] for i in order[:size]]) for order in orders for size in sizes]
    rows += [gates(_shaped(ranked[:chosen], every, rng)) for _ in range(n_random)]
    rows.append(gates(ranked[:chosen]))
    values = game.values(torch.tensor(np.stack(rows)), progress=progress).numpy()
    full, empty = values[0], values[1]
    if abs(float(full.mean() - empty.mean())) < 1e-6:
        raise OptionError(
            f"{task.name} is {full.mean():.4g} {task.task.unit} with all heads and with none"
            f" ({ablation}), so circuits of heads cannot be compared; use another task or ablation"
        )
    own = None
    if found_on is not None:
        curve = rows[: 2 + len(sizes)]
        own = _curve(model, found_on, curve, sizes, kind=kind, seed=seed, **options)
    inside, end = values[-1], at + n_random * len(sizes)
    first = 3 + len(sizes)
    one_out = {
        head: float(inside.mean() - values[first + i].mean())
        for i, head in enumerate(ranked[:chosen])
    }
    return Evaluation(
        circuit, ablation, sizes, values[2 : 2 + len(sizes)], full, empty,
        values[at:end].mean(1).reshape(n_random, len(sizes)), chosen, inside,
        values[end:-1].mean(1), values[2 + len(sizes)], one_out, tuple(known), seed,
        dict(circuit.made) | game.about() | {"ablation": ablation, "n_random": n_random}
        | {"evaluated_on": task.about()},
        len(set(hashes(task)) & set(map(str, circuit.made.get("pairs") or ()))), own,
        task.clusters, task.dependence,
    )  # fmt: skip


evaluate_circuit = evaluate  # the name outside this folder


def _curve(
    model: Model, task: ContrastTask, rows: Sequence[Array], sizes: Sequence[int], **options: Any
) -> dict[str, float]:
    """Return CMD and CPR of a ranking on pairs; the rows are gates for all, none, and each size."""
    game = Game(model, task.task, **options)
    values = game.values(torch.tensor(np.stack(rows))).numpy()
    f = faithful(values[2:].mean(1), values[0].mean(), values[1].mean())
    return {
        "cmd": area(sizes, np.abs(1 - f), 1.0), "cpr": area(sizes, f, 0.0), "n": float(len(task)),
    }  # fmt: skip


def _shaped(heads: Sequence[str], every: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Draw random heads, as many in each layer as the given ones have."""
    by_layer: dict[str, list[str]] = {}
    for head in every:
        by_layer.setdefault(head.partition("H")[0], []).append(head)
    found: list[str] = []
    for layer, pool in by_layer.items():
        size = sum(head.partition("H")[0] == layer for head in heads)
        found += [pool[i] for i in rng.permutation(len(pool))[:size]]
    return found


def _figure(
    name: str, value: float, low: float, high: float, random: float, n: int, what: str
) -> dict[str, Any]:
    return {"figure": name, "value": value, "low": low, "high": high, "random": random, "n": n,
            "what": what}  # fmt: skip


def faithful(value: Array, full: float, empty: float) -> Array:
    """Scale a value to 0 with no heads and 1 with all heads."""
    return (value - empty) / (full - empty)


def area(sizes: Sequence[int], height: Array, start: float, total: int = 0) -> float:
    """Integrate by trapezoids over the share of all heads or edges.

    Args:
        sizes: Numbers of heads or edges.
        height: The curve at these sizes.
        start: The curve at size 0.
        total: Number of all heads or edges; the largest size by default.
    """
    x = np.array([0, *sizes]) / (total or max(sizes))
    return float(np.trapezoid(np.array([start, *height]), x))
