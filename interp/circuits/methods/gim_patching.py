"""GIM: attribution patching with backward rules that correct for saturation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.circuits.declaration import Found, discovery
from interp.circuits.methods._attribution import edges_by_gradient, nodes_by_gradient, units
from interp.circuits.methods._gathered import by_gradient
from interp.circuits.methods._gradients import GIM

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model


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
    return by_gradient(
        model,
        task,
        level,
        lambda pair: nodes_by_gradient(pair, rules=GIM),
        lambda pair: edges_by_gradient(pair, rules=GIM),
        units=units(lambda graph: 1),
    )
