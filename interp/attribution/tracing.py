"""Read the graph of a run back: does every step to the embeddings follow a rule?"""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from interp.core.errors import UnreadableAttention

# Steps of autograd that are linear in what carries a gradient. Anything else must be a rule.
_MOVES = (
    "View UnsafeView ReshapeAlias Alias T Transpose Permute Expand Clone ToCopy Slice Select Index "
    "IndexSelect Gather Cat Stack Split SplitWithSizes Unbind Squeeze Unsqueeze AsStrided "
    "ConstantPadNd Repeat Roll Flip Copy CopySlices Unfold Tril Triu MaskedFill Where"
)
_MOVED = frozenset(_MOVES.split())
_SUMS = "Add Sub Neg Sum Mean IndexAdd ScatterAdd Convolution AccumulateGrad"
_LINEAR = frozenset([*_MOVES.split(), *_SUMS.split(), "Scaled", "Ratio"])
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
    """Note which module a step belongs to."""
    node: Any = x.grad_fn if isinstance(x, Tensor) else None
    if node is not None:
        node.metadata["interp"] = module


def mark_gate(x: Tensor) -> None:
    """Note that a tensor comes out of an activation."""
    node: Any = x.grad_fn
    if node is not None:
        node.metadata["interp gate"] = True


def is_gate(x: Tensor) -> bool:
    """True if a tensor is the output of an activation, perhaps moved or converted since."""
    node: Any = x.grad_fn
    while node is not None and "interp gate" not in node.metadata:
        carrying = _carrying(node)
        node = carrying[0] if _kind(node) in _MOVED and len(carrying) == 1 else None
    return node is not None


def trust(end: Tensor, starts: list[Tensor], trusted: set[Any]) -> None:
    """Everything between `starts` and `end` follows rules of its own."""
    stop = {x.grad_fn for x in starts}
    # axes may have been moved to show the tensors, so the step before them counts too
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
    """Refuse a step that no rule stands for.

    Args:
        output: of the run.
        trusted: steps that a rule stands for.
        freeze_norms: norms have a rule, so that none may be met outside it.
        identity_activations: activations have a rule, so that none may be met outside it.

    Raises:
        UnreadableAttention: naming the module it belongs to.
    """
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
                    f"module {module}: a normalisation ({kind}) inside it has no rule; take "
                    "integrated_gradients or gradient_x_input, which need none"
                )
            if identity_activations and not _has_rule(node, kind):
                raise UnreadableAttention(
                    f"module {module}: {kind} has no rule that keeps what goes in; take "
                    "integrated_gradients or gradient_x_input, which need none"
                )
        left += [(n, module) for n in _carrying(node)]


def _has_rule(node: Any, kind: str) -> bool:
    if kind in _LINEAR:
        return True
    carrying = _carrying(node)
    if kind == "Div":
        return node.next_functions[-1][0] is None or len(node.next_functions) == 1
    if kind in _PRODUCTS:
        if kind == "Addmm":  # the first is what is added
            carrying = [n for n, _ in node.next_functions[1:] if n is not None]
        return len(carrying) < 2 or all(_kind(n) == "Scaled" for n in carrying)
    return False
