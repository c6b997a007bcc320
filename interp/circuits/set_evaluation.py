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
UNEXPLAINED = 0.05  # share of the gap that a node's interval must exceed to be named
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
        without: The same with the set's nodes corrupted and all others clean.
        gap: Clean minus corrupted value of each pair.
        per_prompt: What the set loses without each node, `[node, prompt]`, in the task's unit.
        whole: What the whole model loses without each node.
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
    without: Float[Array, " prompt"] = field(repr=False)
    gap: Float[Array, " prompt"] = field(repr=False)
    per_prompt: Float[Array, "node prompt"] = field(repr=False)
    whole: Float[Array, "node prompt"] = field(repr=False)
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
    def faithfulness(self) -> tuple[float, float, float]:
        """Share of the gap that the set alone keeps, with its 95 % interval."""
        return self.ratio(self.value)[0]

    @property
    def completeness(self) -> tuple[float, float, float]:
        """Share of the gap that is lost when the set's nodes are corrupted, with its interval."""
        return self.ratio(self.gap - self.without)[0]

    def _rows(self) -> pd.DataFrame:
        """Return a row per node: what the set, and the whole model, lose without it, with errors.

        `needed` says that the interval of the set's loss excludes 0: the set is minimal if every
        node is needed. `unexplained` is what the set loses beyond what the model loses: large where
        something outside the set stands in for the node, so that the set is not complete.
        """
        import pandas as pd

        rows = []
        lost, model = self.ratio(self.per_prompt), self.ratio(self.whole)
        rest = self.ratio(self.per_prompt - self.whole)
        for name, of_set, of_model, more in zip(self.nodes, lost, model, rest, strict=True):
            row: Row = {"node": name}
            for what, stated in (("lost", of_set), ("model_lost", of_model), ("unexplained", more)):
                row |= {what: stated[0], f"{what}_low": stated[1], f"{what}_high": stated[2]}
            rows.append(
                row
                | {"needed": of_set[1] > 0 or of_set[2] < 0, "backups": self.backups.get(name, "")}
            )
        ends = ("", "_low", "_high")
        shares = [f"{what}{end}" for what in ("lost", "model_lost", "unexplained") for end in ends]
        frame = pd.DataFrame(rows, columns=["node", *shares, "needed", "backups"])
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
        )

    def figures(self) -> list[Row]:
        """Return a row per figure: value, 95 % interval, random baseline and description."""
        shares = {"faithfulness": self.faithfulness, "completeness": self.completeness}
        what = {
            "faithfulness": f"share of the gap that {len(self.nodes)} nodes and {self._edges}"
            f" keep; {self.asked:g} was asked, {self.kept:.2f} on the pairs of the search",
            "completeness": "share of the gap that is lost without the set; 1 is best",
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
        (value, low, high), (all_lost, below, above) = self.faithfulness, self.completeness
        frame = self._rows()
        idle = [n for n, needed in zip(self.nodes, frame["needed"], strict=True) if not needed]
        more = frame["unexplained_low"] > UNEXPLAINED
        odd = [n for n, large in zip(self.nodes, more, strict=True) if large]
        given = f"chosen to keep {self.asked:g}, and keeps" if self.asked else "keeps"
        lines = [
            f"smallest set: {len(self.nodes)} nodes, {self._edges}, {given}"
            f" {value:.2f} [{low:.2f}, {high:.2f}] of the gap here ({self.kept:.2f} on the pairs of"
            f" the search); random sets with as many heads in each layer {self.random.mean():.2f}"
            f" [{self.random.min():.2f}, {self.random.max():.2f}]",
            f"completeness {all_lost:.2f} [{below:.2f}, {above:.2f}] (1: nothing is left without"
            f" it); not shown to be needed: {' '.join(idle) or 'none'}",
        ]
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
        seed: Seed of the random sets.
        same_weights: Refuse a circuit that was found on other weights of the same shape.
        resume: A folder that stores finished forward passes; the same call reuses them.
        progress: Called with the name of the current work, how much is done and how much there is.

    Raises:
        OptionError: The circuit has no set or is of another model, there are fewer than two pairs,
            or clean and corrupted prompts have the same value.
        UnreadableAttention: The model has no residual graph.

    Unit: Shares of the gap between clean and corrupted prompts.

    Cost: Two forward passes per node of the set, one per random set, and five.

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
        graph, nodes = runs.graph, chosen.nodes
        inside = graph.mask(chosen.edges)
        masks = [inside, runs.node_mask(*nodes)]
        for name in nodes:
            out = inside.clone()
            out[:, graph.writer(name)] = 0
            masks.append(out)
        masks += [runs.node_mask(name) for name in nodes]
        rng = np.random.default_rng([seed, 11])
        masks += [runs.only(_random_set(graph, nodes, rng)) for _ in range(n_random)]
        kept = runs.kept(masks, "evaluating the set")
    n, gap = len(nodes), runs.clean - runs.corrupted
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
        kept[0],
        kept[1],
        gap,
        kept[0][None] - kept[2 : 2 + n],
        gap[None] - kept[2 + n : 2 + 2 * n],
        kept[2 + 2 * n :].mean(1) / gap.mean(),
        {name: " ".join(heads) for name, heads in stands.items()},
        runs.forwards,
        len(set(hashes(task)) & set(map(str, circuit.made.get("pairs") or ()))),
        task.clusters,
        task.dependence,
        task.task.unit,
        provenance,
        chosen.separated,
    )


def _random_set(graph: ResidualGraph, nodes: Sequence[str], rng: np.random.Generator) -> list[str]:
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
