"""RelP: attribution patching with propagation rules in place of derivatives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from interp.attribution.rules import Rules
from interp.circuits.declaration import Found, discovery
from interp.circuits.methods._attribution import edges_by_gradient, nodes_by_gradient, units
from interp.circuits.methods._gathered import by_gradient

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

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
    return by_gradient(
        model,
        task,
        level,
        lambda pair: nodes_by_gradient(pair, rules=rules),
        lambda pair: edges_by_gradient(pair, rules=rules),
        units=units(lambda graph: 1),
    )
