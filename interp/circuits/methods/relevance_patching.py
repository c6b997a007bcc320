"""RelP: attribution patching with propagation rules in place of derivatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.attribution.rules import Rules
from interp.circuits.declaration import Found, discovery
from interp.circuits.methods._attribution import edges_by_gradient, nodes_by_gradient, units
from interp.circuits.methods._gathered import by_gradient

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

RELP = Rules(softmax="freeze", norm="freeze", activation="identity", split=True)


@discovery(levels=("head", "edge"))
def relevance_patching(model: Model, task: ContrastTask, level: str) -> Found:
    """Estimate effects with a backward pass by the rules of layer-wise relevance propagation.

    Attribution patching with four rules in place of derivatives: the scale of a norm and the
    attention pattern are constants; an activation passes f(x)/x on instead of f'(x); both factors
    of a gated MLP get half. So a linear function of what every node writes is decomposed at the
    clean run, and no derivative vanishes where an activation is saturated. Edges into queries and
    keys are exactly 0, because the pattern is a constant. As cheap as one gradient.

    Not for: effects through attention patterns, which are not part of it: on a planted induction
    circuit the previous-token head, which only moves keys, scores 0.

    Reference: Jafari et al. 2025, "RelP" (arXiv 2508.21258).
    """
    return by_gradient(
        model,
        task,
        level,
        lambda pair: nodes_by_gradient(pair, rules=RELP),
        lambda pair: edges_by_gradient(pair, rules=RELP),
        units=units(lambda graph: 1),
    )
