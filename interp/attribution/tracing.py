"""Check of an autograd graph: every step back to the embeddings must follow a rule."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from interp.core.errors import UnreadableAttention

# Autograd steps that are linear in the inputs that carry a gradient. All others need a rule.
_MOVES = (
    "View UnsafeView ReshapeAlias Alias T Transpose Permute Expand Clone ToCopy Slice Select Index "
    "IndexSelect Gather Cat Stack Split SplitWithSizes Unbind Squeeze Unsqueeze AsStrided "
    "ConstantPadNd Repeat Roll Flip Copy CopySlices Unfold Tril Triu MaskedFill Where"
)
_MOVED = frozenset(_MOVES.split())
_SUMS = "Add Sub Neg Sum Mean IndexAdd ScatterAdd Convolution AccumulateGrad"
_LINEAR = frozenset([*_MOVES.split(), *_SUMS.split(), "Scaled", "Ratio", "Rescaled"])
_PRODUCTS = frozenset(["Mul", "Mm", "Bmm", "Addmm", "Baddbmm", "Addbmm", "GroupedMm"])
_SCALES = "Rsqrt Sqrt Std Var StdMean VarMean LinalgVectorNorm Norm"
_NORMS = frozenset(
    [*_SCALES.split(), "NativeLayerNorm", "FusedRmsNorm", "NativeGroupNorm", "NativeBatchNorm"]
)


def _kind(node: Any) -> str:
    return re.sub(r"^_|Backwards?\d*$", "", node.name().rpartition("::")[2])


def _carrying(node: Any) -> list[Any]:
    return [n for n, _ in node.next_functions if n is not None]


def label_step(x: object, module: str) -> None:
    """Record the name of the module to which a step belongs."""
    node: Any = x.grad_fn if isinstance(x, Tensor) else None
    if node is not None:
        node.metadata["interp"] = module


def mark_gate(x: Tensor) -> None:
    """Record that a tensor is the output of an activation function."""
    node: Any = x.grad_fn
    if node is not None:
        node.metadata["interp gate"] = True


def is_gate(x: Tensor) -> bool:
    """Return True if a tensor is the output of an activation, possibly reshaped or converted."""
    node: Any = x.grad_fn
    while node is not None and "interp gate" not in node.metadata:
        carrying = _carrying(node)
        node = carrying[0] if _kind(node) in _MOVED and len(carrying) == 1 else None
    return node is not None


def trust(end: Tensor, starts: list[Tensor], trusted: set[Any]) -> None:
    """Mark all steps between `starts` and `end` as covered by a rule."""
    stop = {x.grad_fn for x in starts}
    # axes may have been permuted to expose the tensors, so the preceding step counts too
    stop |= {n for s in stop if s is not None for n in _carrying(s)}
    left = [end.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in trusted or node in stop:
            continue
        trusted.add(node)
        left += _carrying(node)


def check_graph(
    output: Tensor, trusted: set[Any], *, freeze_norms: bool, identity_activations: bool
) -> None:
    """Raise an error if a step of the graph is not covered by a rule."""
    seen: set[Any] = set()
    left: list[tuple[Any, str]] = [(output.grad_fn, "the output")]
    while left:
        node, module = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        module = node.metadata.get("interp", module)
        kind = _kind(node)
        if node not in trusted:
            if freeze_norms and kind in _NORMS:
                raise UnreadableAttention(
                    f"module {module}: a normalisation ({kind}) inside it has no rule; use "
                    "integrated_gradients or gradient_x_input, which need no rules"
                )
            if identity_activations and not _has_rule(node, kind):
                raise UnreadableAttention(
                    f"module {module}: {kind} has no rule that conserves relevance; use "
                    "integrated_gradients or gradient_x_input, which need no rules"
                )
        left += [(n, module) for n in _carrying(node)]


def _has_rule(node: Any, kind: str) -> bool:
    if kind in _LINEAR:
        return True
    carrying = _carrying(node)
    if kind == "Div":
        return node.next_functions[-1][0] is None or len(node.next_functions) == 1
    if kind in _PRODUCTS:
        if kind == "Addmm":  # the first input is the addend
            carrying = [n for n, _ in node.next_functions[1:] if n is not None]
        return len(carrying) < 2 or all(_kind(n) == "Scaled" for n in carrying)
    return False
