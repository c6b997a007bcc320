"""Nodes and edges chosen by gradients and measured by patching, within a budget of passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.declaration import Found, discovery
from interp.circuits.methods._attribution import (
    RunPair,
    edges_along_inputs,
    effects_without,
    nodes_along_inputs,
)
from interp.circuits.methods._backups import LARGE, stand_ins
from interp.circuits.nodes import larger_effect
from interp.circuits.patched_runs import BASE, PatchedRuns
from interp.circuits.smallest import (
    NodeSet,
    check_share,
    choose_edges,
    choose_nodes,
)
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

ALONE = "patched alone"
ESTIMATED = "estimated by gradients, not patched"
_NOTHING = 1e-9  # estimates below it say nothing about the scale
STEPS = 5
LEAST = BASE + 2  # passes: both runs, their check, and two gradients
_MANY = 40  # passes left after the screen, from which two candidates are tried for each primary
_GAIN = 1.5  # estimated with the primary patched over estimated otherwise, of a backup to try


@dataclass(frozen=True)
class _Shares:
    """Passes for each stage, from those that are left after the screen."""

    primaries: int
    tries: int
    nodes: int
    smallest_nodes: int
    smallest_edges: int

    @classmethod
    def of(cls, left: int, n_nodes: int, size: int, backups: bool) -> _Shares:
        of_nodes = min(math.ceil(math.log2(n_nodes)) + 1, left // 3) if not size else min(1, left)
        of_edges = min(6, left // 5)  # masks of many edges are the slowest passes
        primaries = min(4, max(1, left // 12)) if backups and left >= 6 else 0
        tries = 1 if left < _MANY else 2
        rest = max(0, left - of_nodes - of_edges - primaries * (1 + 2 * tries))
        return cls(
            primaries,
            tries,
            min(n_nodes, math.ceil(0.35 * rest) if left >= _MANY else math.ceil(0.6 * rest)),
            of_nodes,
            of_edges,
        )


@discovery(levels=("edge", "head"))
def verified_edges(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    faithful: float = 0.8,
    size: int = 0,
    budget: int = 0,
    backups: bool = True,
) -> Found:
    """Find the nodes and edges that keep a share of the task, within a budget of forward passes.

    Integrated gradients estimate every node. Patching then measures the first nodes one by one;
    heads that matter only while a primary head is patched are searched by a gradient taken in that
    run, and measured (table `backups`, column `conditional`). The smallest set of nodes, MLPs and
    embeddings included, that keeps the share while all others are corrupted is found by bisection,
    then, by gradients of the edges between them, the smallest set of edges (tables `smallest`,
    `smallest_nodes`, `smallest_edges`). The edges of the set are patched one by one, largest first.
    Each score states whether it was measured or estimated; estimates of nodes are scaled by the
    median ratio of measured effects to estimates.

    faithful: share of the difference between clean and corrupted prompts that the set keeps; its
    faithfulness is then at most 1 - faithful away from 1, to either side. size:
    number of nodes of the set, instead of the share. budget: forward passes over all pairs; 0: as
    many as patching every node takes, three more than there are nodes. backups: search for them.

    Cost: At most the budget of forward passes, and about ten gradients; table `forwards` has them.

    Not for: a proof that no smaller set exists: it looks at the first nodes and edges of a ranking.
    Judge the set on other pairs (`evaluate_set`).

    Reference: integrated gradients as in Hanna et al. 2024 (arXiv 2403.17806), verified by path
    patching (Goldowsky-Dill et al. 2023); backups as in CoAx (arXiv 2607.01940).
    """
    check_share(faithful, size)
    if budget < 0 or 0 < budget < LEAST:
        raise OptionError(
            f"budget={budget}; the clean and corrupted runs and two gradients take {LEAST} passes;"
            " give more, or 0 for as many as patching every node takes"
        )
    runs = PatchedRuns(model, task)
    graph = runs.graph
    runs.budget = budget or max(LEAST, len(graph.writers) + BASE)
    steps = max(1, min(STEPS, int(runs.left) // 5))
    of_edges = min(2, steps - 1) if level == "edge" else 0  # steps of the gradients of edges
    nodes = _Nodes(runs, steps - of_edges, of_edges, size, backups)
    rows = nodes.measure()
    chosen = choose_nodes(
        runs, nodes.ranking(), faithful=faithful, size=size, most=nodes.shares.smallest_nodes
    )
    edges: dict[str, Any] = {}
    if level == "edge":
        chosen, edges = _edges(runs, chosen, max(1, of_edges), faithful, nodes)
    tables = chosen.tables(faithful, runs.stages) | ({"backups": rows} if backups else {})
    patched = [told == ALONE for told in edges.get("edges_measured", ())]
    return Found(
        graph.writers, nodes.scores(), task.task.unit, forwards=runs.forwards,
        backwards=runs.backwards, tables=tables,
        notes=(_note(runs, nodes, patched),),
        measured=tuple(nodes.told(name) for name in graph.writers),
        conditional=nodes.conditional if rows else None,
        conditional_on=tuple(nodes.on) if rows else (), **edges,
    )  # fmt: skip


def _note(runs: PatchedRuns, nodes: _Nodes, patched: list[bool]) -> str:
    told = (
        f"{runs.forwards:.0f} of {runs.budget:.0f} forward passes over all pairs, and"
        f" {runs.backwards:.0f} gradients; {len(nodes.alone)} of {len(runs.graph.writers)} nodes"
    )
    if patched:
        told += f" and {sum(patched)} of {len(patched)} edges between the set's nodes"
    return told + " patched one by one, the others estimated; a larger budget= patches more"


class _Nodes:
    """Effects of single nodes, and of heads while a primary head is patched."""

    def __init__(
        self, runs: PatchedRuns, steps: int, of_edges: int, size: int, backups: bool
    ) -> None:
        self.runs, self.names = runs, list(runs.graph.writers)
        [screen] = runs.gradients(
            lambda pair: (nodes_along_inputs(pair, steps=steps),), "screen by gradients", steps,
            steps,
        )  # fmt: skip
        self.estimates, self.screen = screen, screen.mean(0)
        left = int(runs.left) - max(1, of_edges)
        self.shares = _Shares.of(left, len(self.names), size, backups)
        self.alone: dict[str, np.ndarray] = {}
        self.primary: list[str] = []
        self.conditional = np.full((len(self.names), len(runs.task)), np.nan)
        self.on = [""] * len(self.names)

    def patch(self, names: list[str], most: float) -> None:
        """Patch nodes one by one, in the given order, as far as the passes go."""
        some = [name for name in names if name not in self.alone][: max(0, int(most))]
        lost = self.runs.effects([self.runs.node_mask(name) for name in some], "patching nodes")
        self.alone |= dict(zip(some, lost, strict=True))

    def measure(self) -> list[dict[str, Any]]:
        """Patch primary heads and other nodes of large estimates, and search for backups."""
        order = [self.names[i] for i in np.argsort(-np.abs(self.screen), kind="stable")]
        order = sorted(order, key=lambda name: name == "embed")  # its effect is the gap as a rule
        self.patch(order, min(self.shares.nodes, self.runs.left))
        least = LARGE * max((abs(float(x.mean())) for x in self.alone.values()), default=0.0)
        self.primary = self._primaries(order, least)
        pairs: dict[tuple[str, str], np.ndarray] = {}
        for name in self.primary:
            pairs |= self._tried(name, self._without(name))
        return self._rows(pairs, least)

    def _primaries(self, order: list[str], least: float) -> list[str]:
        """Choose heads without an effect where gradients give one, then those of large effect."""
        size = {name: abs(float(x.mean())) for name, x in self.alone.items() if name[0] == "L"}
        guess = dict(zip(self.names, np.abs(self.screen).tolist(), strict=True))
        hidden = [name for name in order if size.get(name, least) < least <= guess[name]]
        large = sorted((name for name in size if size[name] >= least), key=lambda n: -size[n])
        chosen = [*hidden[: (self.shares.primaries + 1) // 2], *large]
        return list(dict.fromkeys(chosen))[: self.shares.primaries]

    def _without(self, name: str) -> np.ndarray:
        """Patch a primary head, and estimate all other nodes in that run."""

        def scores(pair: RunPair) -> tuple:
            return effects_without(pair, name)

        value, estimates = self.runs.gradients(scores, "search for backups", 1, 1)
        self.alone.setdefault(name, self.runs.clean - value)
        return estimates.mean(0)

    def _tried(self, name: str, guess: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
        """Measure pairs of a primary head and the heads that gain most while it is patched."""
        gain = {
            other: abs(guess[i]) for i, other in enumerate(self.names)
            if other[0] == "L" and other != name and abs(guess[i]) > _GAIN * abs(self.screen[i])
        }  # fmt: skip
        tried = sorted(gain, key=lambda other: -gain[other])[: self.shares.tries]
        tried = tried[: int(self.runs.left // 2)]
        self.patch(tried, self.runs.left)
        both = self.runs.effects(
            [self.runs.node_mask(name, other) for other in tried], "search for backups"
        )
        return {(name, other): lost for other, lost in zip(tried, both, strict=True)}

    def _rows(self, pairs: dict[tuple[str, str], np.ndarray], least: float) -> list[dict[str, Any]]:
        heads = sorted({name for pair in pairs for name in pair}, key=self.names.index)
        effect = np.full((len(heads), len(heads), len(self.runs.task)), np.nan)
        for i, name in enumerate(heads):
            effect[i, i] = self.alone[name]
        for (one, other), lost in pairs.items():
            a, b = heads.index(one), heads.index(other)
            effect[a, b] = effect[b, a] = lost
        rows = stand_ins(effect, heads, self.primary, least, self.runs.task)
        for row in reversed(rows):  # the largest effect is written last and kept
            at, a, b = self.names.index(row["head"]), *map(heads.index, (row["head"], row["for"]))
            self.conditional[at] = effect[a, b] - effect[b, b]
            self.on[at] = row["for"]
        return rows

    @property
    def ratio(self) -> float:
        """Median ratio of measured effects to estimates, at most 1: gradients overestimate."""
        known = [i for i, name in enumerate(self.names) if name in self.alone]
        size = np.abs(larger_effect(self._measured().mean(1), self.conditional.mean(1)))
        found = [size[i] / abs(self.screen[i]) for i in known if abs(self.screen[i]) > _NOTHING]
        return min(1.0, float(np.median(found))) if found else 1.0

    def _measured(self) -> np.ndarray:
        none = np.full(len(self.runs.task), np.nan)
        return np.stack([self.alone.get(name, none) for name in self.names])

    def scores(self) -> np.ndarray:
        """Return the effect of each node alone; an estimate, scaled by `ratio`, if not patched."""
        return np.where(
            np.isnan(self._measured()), self.ratio * self.estimates.T, self._measured()
        )  # fmt: skip

    def ranking(self) -> list[str]:
        """Order nodes as a circuit does, by the larger of effect and conditional effect."""
        size = np.abs(larger_effect(self.scores().mean(1), self.conditional.mean(1)))
        return [self.names[i] for i in np.argsort(-size, kind="stable")]

    def told(self, name: str) -> str:
        """Describe how a node was measured."""
        out = self.on[self.names.index(name)]
        return (ALONE if name in self.alone else ESTIMATED) + (
            f", and with {out} out" if out else ""
        )


def _edges(
    runs: PatchedRuns, chosen: NodeSet, steps: int, faithful: float, nodes: _Nodes
) -> tuple[NodeSet, dict[str, Any]]:
    """Choose edges between the chosen nodes by gradients, and patch those of the set one by one."""
    graph, every = runs.graph, chosen.edges
    if runs.left < steps:
        return chosen, {}
    read = [graph.reader_index[name] for name in dict.fromkeys(b for _, b in every)]
    row = {reader: i for i, reader in enumerate(read)}
    [found] = runs.gradients(
        lambda pair: (edges_along_inputs(pair, steps=steps, readers=read)[:, read],),
        "gradients of edges", steps, steps * (1 + len(read)),
    )  # fmt: skip
    screen = {
        (a, b): found[:, row[graph.reader_index[b]], graph.index[a]] for a, b in every
    }  # fmt: skip
    score = {edge: float(x.mean()) for edge, x in screen.items()}
    most = min(nodes.shares.smallest_edges, runs.left)
    chosen = choose_edges(runs, chosen, score, faithful=faithful, most=most)
    nodes.patch(list(chosen.nodes), runs.left / 2)
    some = sorted(chosen.edges, key=lambda e: -abs(score[e]))[: int(runs.left)]
    masks = [graph.full() - graph.mask([edge]) for edge in some]
    lost = dict(zip(some, runs.effects(masks, "patching edges"), strict=True))
    rows = [lost.get(edge, x) for edge, x in screen.items()]
    told = tuple(ALONE if e in lost else ESTIMATED for e in every)
    return chosen, {"edges": every, "edges_measured": told,
                    "edges_per_prompt": np.array(rows).reshape(len(every), -1)}  # fmt: skip
