"""One gradient for all nodes or edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.circuit.declare import Found, discovery
from interp.discovery._attribution import edges_by_gradient, nodes_by_gradient, nodes_with_drops
from interp.discovery._gathered import by_gradient
from interp.errors import OptionError

if TYPE_CHECKING:
    from interp.circuit.contrast import ContrastTask
    from interp.model.model import Model


@discovery(levels=("head", "edge"))
def attribution_patching(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    at: str = "clean",
    grad_drop: bool = False,
) -> Found:
    """First-order estimate of what each node or edge does, from one backward pass.

    The gradient of the task at the clean run, times the difference of what a node writes between
    the clean and the corrupted run; at the level "edge", of what each reader alone reads (edge
    attribution patching). Cheap and signed, and wrong where the task is saturated or the softmax
    far from linear: verify what matters.

    at: where the gradient is taken, the `clean` or the `corrupted` run.
    grad_drop: average the sizes of scores over runs that each drop one layer's gradient, so that
    effects through different layers do not cancel; heads only, and without signs.

    Reference: Nanda 2023, "Attribution Patching"; Syed et al. 2023 (arXiv 2310.10348) for edges;
    Kramar et al. 2024 (arXiv 2403.00745) for dropped gradients.
    """
    if grad_drop and level == "edge":
        raise OptionError("grad_drop scores heads; leave it out for edges")
    side = "corrupted" if at == "corrupted" else "clean"
    if at not in ("clean", "corrupted"):
        raise OptionError(f"at={at!r}; the gradient is taken at the clean or corrupted run")
    return by_gradient(
        model,
        task,
        level,
        (lambda pair: nodes_with_drops(pair, at=side))
        if grad_drop
        else (lambda pair: nodes_by_gradient(pair, at=side)),
        lambda pair: edges_by_gradient(pair, at=side),
        signed=not grad_drop,
    )
