"""Attribution patching: one gradient, gradients along a path, and backward rules (GIM, RelP)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.attribution.rules import Rules
from interp.circuits.declaration import Found, discovery
from interp.circuits.methods._attribution import (
    At,
    RunPair,
    edges_along_activations,
    edges_along_inputs,
    edges_by_gradient,
    nodes_along_activations,
    nodes_along_inputs,
    nodes_by_gradient,
    nodes_with_drops,
    stages,
    units,
)
from interp.circuits.methods._gathered import by_gradient
from interp.circuits.methods._gradients import GIM
from interp.circuits.methods._qk_fix import Fixed, fixed_scores, units_fixed
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor

    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model


@discovery(levels=("head", "edge"))
def attribution_patching(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    at: str = "clean",
    grad_drop: bool = False,
    qk_fix: bool = False,
) -> Found:
    """Estimate the effect of each node or edge to first order, from one backward pass.

    The score is the gradient of the task at the clean run, times the difference of what a node
    writes between the clean and the corrupted run; at the level "edge", the gradient by what each
    reader alone reads (edge attribution patching). Cheap and signed, but inaccurate where the task
    is saturated or the softmax is far from linear: verify what matters.

    at: where the gradient is taken, the `clean` or the `corrupted` run. grad_drop: average absolute
    scores over runs that each drop one layer's gradient, so that effects through different layers
    do not cancel; heads only, and without signs. qk_fix: for edges into queries and keys compute
    the softmax that the patched query or key gives, instead of its slope, which vanishes where the
    softmax is saturated; a node's score is the sum of its edges. The table `inputs` then has every
    head's query, key and value patched as a whole, by the slope (`plain`) and computed (not with
    `grad_drop`). Every layer's attention is computed once more for each writer before it. With
    `grad_drop` this is AtP*.

    Not for: saturated answers, and heads that stand in for each other: verify what matters.

    Reference: Nanda 2023, "Attribution Patching"; Syed et al. 2023 (arXiv 2310.10348) for edges;
    Kramar et al. 2024 (arXiv 2403.00745) for dropped gradients and computed softmaxes.
    """
    if grad_drop and level == "edge":
        raise OptionError("grad_drop scores heads; leave it out for edges")
    side: At = "corrupted" if at == "corrupted" else "clean"
    if at not in ("clean", "corrupted"):
        raise OptionError(f"at={at!r}; the gradient is taken at the clean or corrupted run")
    if qk_fix:
        return _fixed(model, task, level, side, grad_drop)
    return by_gradient(
        model,
        task,
        level,
        (lambda pair: nodes_with_drops(pair, at=side))
        if grad_drop
        else (lambda pair: nodes_by_gradient(pair, at=side)),
        lambda pair: edges_by_gradient(pair, at=side),
        units=units(lambda graph: len(graph.layers) if grad_drop else 1),
        signed=not grad_drop,
    )


def _fixed(model: Model, task: ContrastTask, level: str, side: At, drops: bool) -> Found:
    """Score with computed softmaxes, and make the table of whole inputs."""

    def scores(pair: RunPair) -> Fixed:
        fixed = fixed_scores(pair, at=side, drops=drops)
        for (order, part), score in fixed.inputs.items() if not drops else ():
            layer = pair.graph.layers[order].site.layer
            both = torch.stack([score, fixed.plain[order, part]]).double().cpu().numpy()
            for h in range(both.shape[2]):
                pair.rows[f"L{layer}H{h}.{part}"] = both[:, :, h]
        return fixed

    def nodes(pair: RunPair) -> Tensor:
        runs = scores(pair).edges
        if not drops:
            return runs[0].sum(1)
        if len(runs) < 2:
            raise OptionError("grad_drop needs two layers: one of them is dropped at a time")
        return torch.stack([edges.sum(1).abs() for edges in runs]).sum(0) / (len(runs) - 1)

    return by_gradient(
        model,
        task,
        level,
        nodes,
        lambda pair: scores(pair).edges[0],
        units=units_fixed(drops),
        signed=not drops,
        tables=_inputs,
    )


def _inputs(rows: list[Mapping[str, np.ndarray]]) -> dict[str, list[dict[str, Any]]]:
    """Make the table of whole inputs from the rows of every batch."""
    table = []
    for name in rows[0]:
        mean = np.concatenate([r[name] for r in rows], 1).mean(1)
        head, _, part = name.partition(".")
        table.append(
            {"head": head, "input": part, "score": float(mean[0]), "plain": float(mean[1])}
        )
    return {"inputs": table} if table else {}


@discovery(levels=("head", "edge"))
def integrated_patching(
    model: Model, task: ContrastTask, level: str, *, path: str = "inputs", steps: int = 5
) -> Found:
    """Estimate effects by the gradient averaged along a path, so that saturated ends count less.

    path: `inputs` moves the embeddings from the corrupted to the clean ones (EAP-IG); `activations`
    moves one group of nodes at a time while the others stay clean: closer to patching each node,
    with as many times the passes as there are groups. steps: number of midpoints on the path.

    Cost: A gradient per step; with the path over activations, per step and group of nodes.

    Not for: heads that stand in for each other, and steep paths with few steps.

    Reference: Hanna et al. 2024 (arXiv 2403.17806); the path over activations as in Mueller et al.
    2025 (arXiv 2504.13151).
    """
    if steps < 1:
        raise OptionError(f"steps={steps}; give at least 1")
    if path not in ("inputs", "activations"):
        raise OptionError(f"path={path!r}; expected inputs or activations")
    nodes, edges = (
        (nodes_along_inputs, edges_along_inputs)
        if path == "inputs"
        else (nodes_along_activations, edges_along_activations)
    )
    return by_gradient(
        model,
        task,
        level,
        lambda pair: nodes(pair, steps=steps),
        lambda pair: edges(pair, steps=steps),
        units=units(lambda graph: steps * (1 if path == "inputs" else stages(graph))),
    )


@discovery(levels=("head", "edge"))
def gim_patching(model: Model, task: ContrastTask, level: str) -> Found:
    """Estimate effects with a backward pass that softens the softmax and holds norms fixed.

    Attribution patching with four rules: norms' statistics are constants; the softmax's derivative
    is taken at temperature 2; gradients to queries, keys and values are scaled by a quarter, a
    quarter and a half; and those to both factors of a gated MLP by a half. As cheap as one
    gradient.

    Not for: estimates of what patching would give: the rules rank, they do not measure.

    Reference: Edin et al. 2025, "GIM" (arXiv 2505.17630).
    """
    return _by_rules(model, task, level, GIM)


RELP = Rules(norm="freeze", activation="identity", split="gates")


@discovery(levels=("head", "edge"))
def relevance_patching(
    model: Model, task: ContrastTask, level: str, *, freeze_patterns: bool = False
) -> Found:
    """Estimate effects with a backward pass by the rules of layer-wise relevance propagation.

    Attribution patching with three rules in place of derivatives: the scale of a norm is a
    constant; an activation passes f(x)/x on instead of f'(x); both factors of a gated MLP get half.
    So no derivative vanishes where an activation is saturated. Attention is differentiated. As
    cheap as one gradient.

    freeze_patterns: attention patterns are constants too (the AH-rule, which the publication leaves
    out by default). A linear function of what every node writes is then decomposed at the clean
    run, but edges into queries and keys are exactly 0: on a planted induction circuit the
    previous-token head, which only moves keys, scores 0.

    Not for: saturated attention, whose derivative vanishes; use screen_verify or verified_edges.

    Reference: Jafari et al. 2025, "RelP" (arXiv 2508.21258).
    """
    rules = replace(RELP, softmax="freeze") if freeze_patterns else RELP
    return _by_rules(model, task, level, rules)


def _by_rules(model: Model, task: ContrastTask, level: str, rules: Rules) -> Found:
    return by_gradient(
        model,
        task,
        level,
        lambda pair: nodes_by_gradient(pair, rules=rules),
        lambda pair: edges_by_gradient(pair, rules=rules),
        units=units(lambda graph: 1),
        frozen=rules.norm == "freeze",
    )
