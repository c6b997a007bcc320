"""Faithfulness of a circuit of edges: its top edges carry clean values, all others corrupted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.contrast import ContrastTask
from interp.circuits.contrast_batch import ContrastBatch
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.faithfulness import SHARES, SizeCurve, faithful
from interp.circuits.identity import model_content, of_task
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.result import Circuit
from interp.circuits.smallest import connected
from interp.circuits.steps import advance, counted, following, step
from interp.circuits.stored_steps import Kept
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.rank_statistics import auroc, auroc_interval
from interp.core.ties import ordered
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class EdgeEvaluation(SizeCurve):
    """Values of the task with only the top edges clean, measured by forward passes.

    Args:
        circuit: The circuit that was evaluated.
        edges: Number of edges in the graph.
        sizes: Numbers of edges that carry clean values.
        per_prompt: The task's value, `[size, prompt]`; `full` and `empty` with all and no edges.
        random: Means with as many random edges, `[draw, size]`.
        truth: Edges that are known because they were built in, a subset of `between`.
        seed: Seed of the random orders.
        between: Edges that the truth covers; it says that those not in `truth` carry nothing.
        made: Provenance.
        clusters: A label per pair where pairs share a template; errors are over clusters.
        unit: The task's unit.
        partial: Only some of the sizes are kept.
    """

    circuit: Circuit
    edges: int
    sizes: tuple[int, ...]
    per_prompt: Float[Array, "size prompt"] = field(repr=False)
    full: Float[Array, " prompt"] = field(repr=False)
    empty: Float[Array, " prompt"] = field(repr=False)
    random: Float[Array, "draw size"] = field(repr=False)
    truth: tuple[tuple[str, str], ...] = ()
    seed: int = 0
    between: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    unit: str = ""
    partial: bool = False
    _things = "edges"

    @property
    def total(self) -> int:
        """Number of all edges."""
        return self.edges

    def against_truth(self) -> dict[str, float]:
        """Compute the AUROC of absolute scores against the known edges, with its interval.

        Only edges between nodes of the kinds that the known edges are between count, such as those
        from a head to the queries, keys or values of another. An edge that the circuit does not
        score counts as 0.
        """
        if not self.truth:
            raise OptionError(f"no edges are known for {self.circuit.task}; give them as truth=")
        size = dict.fromkeys(self.between, 0.0)
        for edge, score in zip(self.circuit.edges, self.circuit.edge_score, strict=True):
            if edge in size:
                size[edge] = abs(float(score))
        mask = np.array([edge in self.truth for edge in size])
        scores = np.array(list(size.values()))
        low, high = auroc_interval(scores, mask, seed=self.seed)
        return {"auroc": auroc(scores, mask), "low": low, "high": high, "of": float(len(size))}

    def summary(self) -> str:
        """Summarise the evaluation in one line."""
        beside = faithful(self.random.mean(0), self.full.mean(), self.empty.mean())
        kept = [
            f"{size}: {value:.2f} ({random:.2f})"
            for size, value, random in zip(self.sizes, self.faithfulness, beside, strict=True)
        ]
        line = (
            f"share kept by the first of {self.edges}, others corrupted, and by as many random"
            f" ones: {', '.join(kept)}"
        )
        if self.truth:
            known = self.against_truth()
            line += (
                f"; built in {' '.join(f'{a}>{b}' for a, b in self.truth)}: AUROC"
                f" {known['auroc']:.3f} [{known['low']:.3f}, {known['high']:.3f}] of"
                f" {known['of']:.0f} edges{_kinds(self.between)}"
            )
        return line

    def _rows(self) -> pd.DataFrame:
        """Return a table with one row per size."""
        import pandas as pd

        gap = self.full.mean() - self.empty.mean()
        return pd.DataFrame(
            {
                "edges": self.sizes,
                "share": np.array(self.sizes) / self.edges,
                "value": self.per_prompt.mean(1),
                "faithfulness": self.faithfulness,
                "random": (self.random - self.empty.mean()).mean(0) / gap,
                "n": self.per_prompt.shape[1],
                "ablation": "corrupted",
            }
        )

    def __repr__(self) -> str:
        if self.partial:
            return f"EdgeEvaluation({self.circuit.method}: {self._listed()})"
        n = self.per_prompt.shape[1]
        return f"EdgeEvaluation({self.circuit.method}, {n} pairs: {self.summary()})"


def _values(
    graph: ResidualGraph, task: ContrastTask, masks: Sequence[Float[Tensor, "reader writer"]]
) -> Float[Array, "mask prompt"]:
    per_prompt = np.zeros((len(masks), len(task)))

    def measured(batch: ContrastBatch) -> Float[Array, "mask prompt"]:
        edges = EdgeForward(graph, batch.clean, batch.corrupted, read_at=batch.read_at)

        def one(mask: Float[Tensor, "reader writer"]) -> Float[Array, " prompt"]:
            return batch.value(edges.run(mask)).double().cpu().numpy()

        values = []
        for mask in masks:
            values.append(step("mask", partial(one, mask)))
            advance()
        return np.stack(values)

    batches = list(task.batches())
    with counted("evaluating edges", len(masks) * len(batches)) as done:
        for i, batch in enumerate(batches):
            per_prompt[:, list(batch.which)] = step("batch", partial(measured, batch))
            done(len(masks) * (i + 1))
    return per_prompt


@takes_model
def evaluate_edges(
    model: Model,
    circuit: Circuit,
    task: ContrastTask,
    *,
    truth: Sequence[tuple[str, str]] | None = None,
    n_random: int = 5,
    seed: int = 0,
    same_weights: bool = True,
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> EdgeEvaluation:
    """Run the model with the top edges of a circuit, over sizes, beside random edges.

    Edges that the circuit did not score come last. Shares are those of the MIB benchmark (Mueller
    et al. 2025, arXiv 2504.13151), whose figures count edges of this kind too.

    Args:
        model: The model that the circuit was found in.
        circuit: A circuit with edges.
        task: Pairs of prompts, other than those the circuit was found on.
        truth: Known edges between heads, such as `[("L0H3", "L1H0.k")]`; the task's by default.
        n_random: Number of random orders of all edges.
        seed: Seed of the random orders.
        same_weights: Refuse a circuit that was found on other weights of the same shape.
        resume: A folder that stores finished forward passes; the same evaluation reuses them.
        progress: Called with the name of the current work, how much is done and how much there is.

    Raises:
        OptionError: The circuit has no edges or is of another model, or the task has the same value
            with all edges and with none.
        UnreadableAttention: The model has no residual graph.
    """
    circuit.require(model, same_weights=same_weights)
    graph = ResidualGraph.of(model)
    if not circuit.edges:
        raise OptionError(f"{circuit!r} has no edges; find it at the level edge, with level='edge'")
    every = list(graph.edges)
    place = {e: i for i, e in enumerate(every)}
    strange = [e for e in circuit.edges if e not in place]
    if strange:
        a, b = strange[0]
        raise OptionError(
            f"the edge {a} -> {b} of this circuit is not in {model.name}'s residual graph; pairs "
            "of heads, as codes gives them, are not edges of that graph"
        )
    known = tuple((a, b) for a, b in (task.truth_edges if truth is None else truth))
    if odd := [e for e in known if e not in place]:
        raise OptionError(f"{model.name} has no edge {odd[0][0]} -> {odd[0][1]}, said to be known")
    order = ordered(np.abs(circuit.edge_score))
    ranked = [place[circuit.edges[i]] for i in order]
    scored = set(ranked)
    ranked += [i for i in range(len(every)) if i not in scored]
    sizes = tuple(sorted({max(1, round(share * len(every))) for share in SHARES}))
    rng = np.random.default_rng([seed, 9])
    orders = [ranked, *(rng.permutation(len(every)).tolist() for _ in range(n_random))]
    masks = [graph.full(), torch.zeros_like(graph.full())]
    # edges on no path from the embeddings to the logits change nothing: with none, all is corrupted
    masks += [graph.mask(connected([every[i] for i in o[:size]])) for o in orders for size in sizes]
    different = list({mask.numpy().tobytes(): mask for mask in masks}.values())
    number = {mask.numpy().tobytes(): i for i, mask in enumerate(different)}
    store = None
    if resume is not None:
        values = {"orders": hashlib.sha256(json.dumps([orders, sizes]).encode()).hexdigest()}
        store = Kept(resume, model_content(model) | of_task(model, task) | values)
    with following(store, progress):
        measured = _values(graph, task, different)
    per_prompt = measured[[number[mask.numpy().tobytes()] for mask in masks]]
    full, empty = per_prompt[0], per_prompt[1]
    if abs(float(full.mean() - empty.mean())) < 1e-6:
        raise OptionError(
            f"{task.name} has the same value with all edges and with none on {model.name}, so"
            " circuits of edges cannot be compared; use another task"
        )
    means = per_prompt[2:].mean(1).reshape(len(orders), len(sizes))
    provenance = (
        dict(circuit.made)
        | task.about()
        | {"ablation": "corrupted", "n_random": n_random, "seed": seed}
    )
    between = comparable(every, known)
    return EdgeEvaluation(
        circuit,
        len(every),
        sizes,
        per_prompt[2 : 2 + len(sizes)],
        full,
        empty,
        means[1:],
        known,
        seed,
        between,
        provenance,
        task.clusters,
        task.task.unit,
    )


def comparable(
    every: Sequence[tuple[str, str]], known: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Return the edges between nodes of the kinds that known edges are between, and between heads.

    The kinds are heads, MLPs, the embeddings and the logits.
    """
    kinds = {node[0] for edge in known for node in edge} | {"L"}
    return tuple((a, b) for a, b in every if {a[0], b[0]} <= kinds)


def _kinds(edges: Sequence[tuple[str, str]]) -> str:
    """Return " between heads" where all edges are."""
    return " between heads" if {node[0] for edge in edges for node in edge} == {"L"} else ""
