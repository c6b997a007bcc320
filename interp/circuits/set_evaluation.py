"""Faithfulness, completeness and minimality of a set of nodes and edges, on other pairs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Float

from interp.circuits.contrast import ContrastTask, hashes
from interp.circuits.identity import model_content, of_task
from interp.circuits.nodes import head_columns
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.removals import INPUT, STAGE, Removals
from interp.circuits.result import Circuit
from interp.circuits.steps import following
from interp.circuits.stored_steps import Kept
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.result import Result
from interp.core.standard_errors import standard_error
from interp.core.statistics import ratio_intervals
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd

    from interp.circuits.residual_graph import ResidualGraph
    from interp.model.model import Model

Array = np.ndarray
LEAST = 1e-4  # share of the gap above which a node's interval must lie for the node to be needed
UNEXPLAINED = 0.05  # share of the gap that a node's interval must exceed to be named
_SHARES, _ENDS = ("lost", "model_lost", "unexplained", "last"), ("", "_low", "_high")
Row = dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class SetEvaluation(Result):
    """Figures of a set of nodes and edges, as shares of the gap of clean and corrupted prompts.

    The rows are the nodes of the set; their score is what the set loses without them.

    Args:
        model, task: Names.
        nodes: Nodes of the set.
        edges: Number of its edges.
        asked: Share that the set was selected to keep, and `kept` on its own pairs.
        value: Value of each pair above its corrupted value with only the set's edges clean.
        worst: For each half of the pairs, the heads and MLPs without which set and model differ
            most there, of `tried` subsets.
        apart: By pair, how much the model keeps more than the set without those that the other half
            chose; fewer than four pairs are not halved.
        tried: Number of subsets.
        gap: Clean minus corrupted value of each pair.
        per_prompt: What the set loses without each node, `[node, prompt]`, in the task's unit.
        whole: What the whole model loses without each node.
        last: What the set loses without a node once all others that it does not need by themselves
            are gone; NaN for nodes that it needs.
        random: Faithfulness of random sets of nodes with all edges between them, as many heads in
            each layer and as many MLPs as the set has, and the embeddings if it has them.
        backups: By node, the heads that are known to stand in for it.
        forwards: Forward passes over all pairs.
        seen: Number of these pairs that the set was selected on.
        clusters: A label per pair where pairs share a template; intervals resample them.
        dependence: What the intervals resample.
        unit: The task's unit.
        made: Provenance.
        separated: Whether edges were selected too; otherwise all edges between the nodes belong to
            the set.
    """

    model: str
    task: str
    nodes: tuple[str, ...]
    edges: int
    asked: float
    kept: float
    value: Float[Array, " prompt"] = field(repr=False)
    worst: tuple[tuple[str, ...], ...]
    apart: Float[Array, " prompt"] = field(repr=False)
    tried: int
    gap: Float[Array, " prompt"] = field(repr=False)
    per_prompt: Float[Array, "node prompt"] = field(repr=False)
    whole: Float[Array, "node prompt"] = field(repr=False)
    last: Float[Array, "node prompt"] = field(repr=False)
    random: Float[Array, " draw"] = field(repr=False)
    backups: Mapping[str, str] = field(default_factory=dict)
    forwards: float = 0.0
    seen: int = 0
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    dependence: str = ""
    unit: str = ""
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    separated: bool = True
    _units = ("node",)
    _by = "abs"

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The model, the circuit's method and the pairs."""
        return self.made

    def __len__(self) -> int:
        return len(self.nodes)

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "loss of the set", "unit": self.unit, "n": len(self.gap)}

    def ratio(self, values: Float[Array, "row prompt"]) -> list[tuple[float, float, float]]:
        """Return means as shares of the mean gap, each with its 95 % interval."""
        values = np.atleast_2d(values)
        if not len(values):
            return []
        ends = ratio_intervals(values, self.gap, clusters=self.clusters)
        mean = values.mean(1) / self.gap.mean()
        return [(float(m), float(a), float(b)) for m, (a, b) in zip(mean, ends, strict=True)]

    @property
    def _edges(self) -> str:
        return f"{self.edges} edges" if self.separated else f"all {self.edges} edges between them"

    @property
    def _worst(self) -> str:
        """Describe the subsets without which set and model differ most."""
        without = [f"without {' '.join(x)}" if x else "with nothing removed" for x in self.worst]
        return (
            f"1 is best; of {self.tried} subsets of its heads and MLPs, set and model differ most"
            f" {' or '.join(dict.fromkeys(without))}"
        )

    @property
    def faithfulness(self) -> tuple[float, float, float]:
        """Share of the gap that the set alone keeps, with its 95 % interval."""
        return self.ratio(self.value)[0]

    @property
    def completeness(self) -> tuple[float, float, float]:
        """One minus the largest difference of what set and model keep without the same nodes.

        The difference is a share of the gap, and is largest over subsets of the set's heads and
        MLPs, the empty one included. One half of the pairs chooses the subset, the other half
        measures it, and the reverse; with a 95 % interval.
        """
        value, low, high = self.ratio(self.apart)[0]
        least = 0.0 if low < 0 < high else min(abs(low), abs(high))
        return 1 - abs(value), 1 - max(abs(low), abs(high)), 1 - least

    def _rows(self) -> pd.DataFrame:
        """Return a row per node: what the set, and the whole model, lose without it, with errors.

        `needed` says that the set loses something without the node, or does so once the others
        that it does not need by themselves are gone (`last`): the set is minimal if every node is
        needed. `unexplained` is what the set loses beyond what the model loses: large where
        something outside the set stands in for the node, so that the set is not complete.
        """
        import pandas as pd

        rows = []
        lost, model = self.ratio(self.per_prompt), self.ratio(self.whole)
        rest, known = self.ratio(self.per_prompt - self.whole), ~np.isnan(self.last[:, 0])
        of_last = iter(self.ratio(self.last[known]))
        last = [next(of_last) if one else (math.nan,) * 3 for one in known]
        stated = dict(zip(_SHARES, (lost, model, rest, last), strict=True))
        for i, name in enumerate(self.nodes):
            row: Row = {"node": name}
            for what, shares in stated.items():
                row |= {f"{what}{end}": x for end, x in zip(_ENDS, shares[i], strict=True)}
            needed = lost[i][1] > LEAST or last[i][1] > LEAST
            rows.append(row | {"needed": needed, "backups": self.backups.get(name, "")})
        columns = [f"{what}{end}" for what in _SHARES for end in _ENDS]
        frame = pd.DataFrame(rows, columns=["node", *columns, "needed", "backups"])
        return frame.assign(
            score=self.per_prompt.mean(1), sem=standard_error(self.per_prompt, self.clusters)
        )

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        return super()._completed(rows.assign(**head_columns(rows["node"].tolist())))

    def _take(self, rows: Sequence[int]) -> Self:
        evaluation: Any = self
        rows = list(rows)
        return replace(
            evaluation,
            nodes=tuple(self.nodes[i] for i in rows),
            per_prompt=self.per_prompt[rows],
            whole=self.whole[rows],
            last=self.last[rows],
        )

    def figures(self) -> list[Row]:
        """Return a row per figure: value, 95 % interval, random baseline and description."""
        shares = {"faithfulness": self.faithfulness, "completeness": self.completeness}
        what = {
            "faithfulness": f"share of the gap that {len(self.nodes)} nodes and {self._edges}"
            f" keep; {self.asked:g} was asked, {self.kept:.2f} on the pairs of the search",
            "completeness": self._worst,
        }
        rows: list[Row] = [
            {
                "figure": name,
                "value": x[0],
                "low": x[1],
                "high": x[2],
                "random": float(self.random.mean()) if name == "faithfulness" else math.nan,
                "n": len(self.gap),
                "what": what[name],
            }
            for name, x in shares.items()
        ]
        return rows

    def summary(self) -> list[str]:
        """Describe the set in lines for the screen."""
        (value, low, high), (complete, below, above) = self.faithfulness, self.completeness
        frame = self._rows()
        idle = [n for n, needed in zip(self.nodes, frame["needed"], strict=True) if not needed]
        either = [n for n, low in zip(self.nodes, frame["last_low"], strict=True) if low > LEAST]
        more = frame["unexplained_low"] > UNEXPLAINED
        odd = [n for n, large in zip(self.nodes, more, strict=True) if large]
        given = f"chosen to keep {self.asked:g}, and keeps" if self.asked else "keeps"
        lines = [
            f"smallest set: {len(self.nodes)} nodes, {self._edges}, {given}"
            f" {value:.2f} [{low:.2f}, {high:.2f}] of the gap here ({self.kept:.2f} on the pairs of"
            f" the search); random sets with as many heads in each layer {self.random.mean():.2f}"
            f" [{self.random.min():.2f}, {self.random.max():.2f}]",
            f"completeness {complete:.2f} [{below:.2f}, {above:.2f}] ({self._worst});"
            f" not shown to be needed: {' '.join(idle) or 'none'}",
        ]
        if either:
            lines.append(f"needed only once the others of these are gone: {' '.join(either)}")
        if high < self.asked:
            lines.append(
                f"the set keeps less than {self.asked:g} here: it fits the pairs of the search too"
                " closely; search on more pairs, or ask for a larger share"
            )
        if odd:
            lines.append(
                f"outside the set something stands in for {' '.join(odd)}: the model loses less"
                " than the set without each of them"
            )
        pairs = [f"{b} for {a}" for a, b in self.backups.items()]
        if pairs:
            lines.append(f"backups: {', '.join(pairs)}")
        return lines

    def __repr__(self) -> str:
        stated = self.summary()
        return f"SetEvaluation({self.task} in {self.model}: {stated[0]}; {stated[1]})"


@takes_model
def evaluate_set(
    model: Model,
    circuit: Circuit,
    task: ContrastTask,
    *,
    n_random: int = 20,
    seed: int = 0,
    same_weights: bool = True,
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> SetEvaluation:
    """Measure the smallest set of a circuit on pairs that it was not selected on.

    Only the set's edges carry clean values; all others, those of MLPs and embeddings included,
    carry corrupted ones. Each node is then removed from the set, and from the whole model.

    Args:
        model: The model that the circuit was found in.
        circuit: A circuit with its smallest set (`smallest_set`, or of `verified_edges`).
        task: Pairs of prompts, other than those of the search; `seen` counts the same ones.
        n_random: Number of random sets.
        seed: Seed of the random sets and subsets, and of the halves of the pairs.
        same_weights: Refuse a circuit that was found on other weights of the same shape.
        resume: A folder that stores finished forward passes; the same call reuses them.
        progress: Called with the name of the current work, how much is done and how much there is.

    Raises:
        OptionError: The circuit has no set or is of another model, there are fewer than two pairs,
            or clean and corrupted prompts have the same value.
        UnreadableAttention: The model has no residual graph.

    Unit: Shares of the gap between clean and corrupted prompts.

    Cost: Two forward passes per node of the set and per subset of its nodes (10 random ones, and
        some for a greedy choice), one per random set, and five.

    Null: Random sets of nodes, with as many heads in each layer.

    Not for: the pairs that the set was selected on.

    Reference: Wang et al. 2022 (arXiv 2211.00593) for completeness and minimality.
    """
    circuit.require(model, same_weights=same_weights)
    chosen = circuit.chosen
    if chosen is None:
        raise OptionError(
            f"{circuit!r} has no smallest set; make it with smallest_set(model, circuit, task)"
        )
    store = None
    if resume is not None:
        set_settings = {
            "set": [list(chosen.nodes), [list(e) for e in chosen.edges], n_random, seed]
        }
        store = Kept(resume, model_content(model) | of_task(model, task) | set_settings)
    with following(store, progress):
        runs = PatchedRuns(model, task)
        if abs(runs.gap) < 1e-9:
            raise OptionError(
                f"{task.name}: clean and corrupted prompts have the same value on average, so a"
                " set cannot keep a share of their difference; use other pairs"
            )
        nodes, gap = chosen.nodes, runs.clean - runs.corrupted
        removals = Removals(runs, runs.graph.mask(chosen.edges), nodes, seed)
        worst, apart = removals.judged()
        value = removals.kept[()][0]
        lost, whole = (
            np.stack([full - removals.kept[(name,)][side] for name in nodes])
            for side, full in enumerate((value, gap))
        )
        ends = ratio_intervals(lost, gap, clusters=task.clusters)
        idle = [i for i, name in enumerate(nodes) if ends[i, 0] <= LEAST and name != INPUT]
        last = np.full_like(lost, np.nan)
        if len(idle) > 1:
            last[idle] = removals.last_of([nodes[i] for i in idle])
        rng = np.random.default_rng([seed, 11])
        masks = [runs.only(random_set(runs.graph, nodes, rng)) for _ in range(n_random)]
        random = runs.kept(masks, STAGE).mean(1)
    stands: dict[str, list[str]] = {}
    for row in circuit.tables.get("backups", ()):
        if abs(row["alone"]) < abs(row["without_it"]):
            stands.setdefault(str(row["for"]), []).append(str(row["head"]))
    provenance = model_provenance(model) | task.about() | {"method": circuit.method, "seed": seed}
    provenance |= {"made_by": "interp.circuits.evaluate_set", "ablation": "corrupted"}
    return SetEvaluation(
        model.name,
        task.name,
        nodes,
        len(chosen.edges),
        chosen.asked,
        chosen.kept,
        value,
        worst,
        apart,
        sum(INPUT not in subset for subset in removals.kept),
        gap,
        lost,
        whole,
        last,
        random / gap.mean(),
        {name: " ".join(heads) for name, heads in stands.items()},
        runs.forwards,
        len(set(hashes(task)) & set(map(str, circuit.made.get("pairs") or ()))),
        task.clusters,
        task.dependence,
        task.task.unit,
        provenance,
        chosen.separated,
    )


def random_set(graph: ResidualGraph, nodes: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Draw as many heads in each layer and as many MLPs as some nodes have; embeddings are kept."""
    pools: dict[str, list[str]] = {}
    for name in graph.writers:
        kind = name.partition("H")[0] if name[0] == "L" else name.rstrip("0123456789")
        pools.setdefault(kind, []).append(name)
    drawn: list[str] = []
    for pool in pools.values():
        size = sum(name in pool for name in nodes)
        drawn += [pool[i] for i in rng.permutation(len(pool))[:size]]
    return drawn
