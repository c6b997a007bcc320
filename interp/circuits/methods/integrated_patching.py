"""Attribution patching with gradients averaged along a path from corrupted to clean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.circuits.declaration import Found, discovery
from interp.circuits.methods._attribution import (
    edges_along_activations,
    edges_along_inputs,
    nodes_along_activations,
    nodes_along_inputs,
    stages,
    units,
)
from interp.circuits.methods._gathered import by_gradient
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model


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
