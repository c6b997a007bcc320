"""Attention call from what passes through transformers' attention interface.

The functions of transformers compute a softmax of scale times q·k, biases and a mask, and are read
by that formula. A function that a user registered may compute anything. It is read by the formula
where that gives its output, else by the weights that it returns, where these times the values are
its output: as a pattern where they are not negative and each row sums to one, else as a map.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import Call, ComputedCall, ReturnedCall, precise
from interp.model.calls.map_call import MapCall

# Arguments that families pass besides the common ones and that do not change the scores. Any other
# argument that is not None is unknown to the formulas, and the self-check at load detects it.
_SINK_NAMES = ("s_aux", "sinks")

USER_MAP = "user-supplied"  # kind of a map whose rows are no attention probabilities

# Times the rounding of one entry; a product over keys rounds a few times.
_ROUNDINGS = 8


@dataclass(frozen=True, eq=False)
class Passed:
    """Arguments and results of one call of an attention function."""

    name: str
    function: Callable
    module: nn.Module
    tensors: tuple[Tensor, Tensor, Tensor, Any]  # query, key, value, mask
    options: dict[str, Any] = field(repr=False)
    out: Tensor
    weights: Any = None

    @property
    def z(self) -> Tensor:
        """The output, split by head."""
        query, out = self.tensors[0], self.out
        return out.reshape(out.shape[0], out.shape[1], query.shape[1], -1).transpose(1, 2)

    @property
    def user_supplied(self) -> bool:
        """True unless the function comes with transformers."""
        return supplied_by_user(self.function)

    def by_formula(self) -> ComputedCall:
        """Return the call as a softmax of scale times q·k, biases and the mask."""
        query, key, value, mask = self.tensors
        name, options, module = self.name, self.options, self.module
        if mask is not None and not (isinstance(mask, Tensor) and mask.dim() == 4):
            raise unread_kernel(module, name)
        require_read_kernel(module, name)
        scale, causal = options.get("scaling"), options.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        sinks = next((options[n] for n in _SINK_NAMES if options.get(n) is not None), None)
        if sinks is not None and sinks.numel() != query.shape[1]:
            raise UnreadableAttention(
                f"{type(module).__name__} passes {sinks.numel()} sink logits for {query.shape[1]} "
                "heads; only one logit per head can be read, so it is refused"
            )
        own_code = name == "eager" or self.user_supplied
        return ComputedCall(
            owner=type(module).__name__,
            q=query,
            k=key,
            v=value,
            z=self.z,
            scale=float(query.shape[-1] ** -0.5 if scale is None else scale),
            mask=mask,
            # eager functions do not hide later positions themselves: their mask does
            causal=name != "eager" and bool(causal) and mask is None and query.shape[2] > 1,
            bias=options.get("position_bias"),
            softcap=options.get("softcap"),
            sinks=sinks,
            rounds=own_code and query.dtype in (torch.bfloat16, torch.float16),
        )

    def tried(self) -> Call:
        """Return the call of a user's function by the first reading that gives its output."""
        try:
            formula = self.by_formula()
        except UnreadableAttention:
            if self._weights_give_output():
                return self.by_weights()
            raise
        close = _close(formula.mix(formula.pattern()), self.z)
        return formula if close or not self._weights_give_output() else self.by_weights()

    def by_weights(self, pattern: bool | None = None) -> ReturnedCall | MapCall:
        """Return the call of a user's function by the weights that it returned."""
        if not self._has_weights():
            raise UnreadableAttention(
                f"{type(self.module).__name__} runs the function {self.name!r}, which returns no "
                "attention weights on these inputs, unlike when the model was loaded; return them "
                "as its second result"
            )
        weights, z, value = self.weights, self.z, self.tensors[2]
        masked_by = self._mask()
        if pattern is None:
            off = (precise(weights).sum(-1) - 1).abs().max()
            sums_to_one = bool(off <= _ROUNDINGS * torch.finfo(weights.dtype).eps)
            pattern = sums_to_one and not bool((weights < 0).any())
        if pattern:
            return ReturnedCall(value, z, weights, weights, masked_by=masked_by)
        return MapCall(
            v=value,
            z=z,
            kind=USER_MAP,
            of_rows=lambda rows: weights[:, :, rows],
            to_projection=lambda x: x.transpose(1, 2).flatten(2),
            signed=bool((weights < 0).any()),
            row_sum="any",
            masked_by=masked_by,
        )

    def _has_weights(self) -> bool:
        query, key, _, _ = self.tensors
        shape = (*query.shape[:3], key.shape[2])
        weights = self.weights
        return (
            isinstance(weights, Tensor)
            and weights.is_floating_point()
            and tuple(weights.shape) == shape
        )

    def _weights_give_output(self) -> bool:
        if not self._has_weights():
            return False
        value = self.tensors[2]
        return _close(ReturnedCall(value, self.z, self.weights, self.weights).mixed(), self.z)

    def _mask(self) -> ComputedCall:
        """Return a call with the mask of the keys that may have weights: the model's, or none."""
        query, key, value, mask = self.tensors
        readable = isinstance(mask, Tensor) and mask.dim() == 4
        causal = mask is None and bool(getattr(self.module, "is_causal", True))
        call = ComputedCall(
            query,
            key,
            value,
            self.z,
            1.0,
            mask=mask if readable else None,
            causal=causal and query.shape[2] > 1,
            owner=type(self.module).__name__,
        )
        if bool(self.weights.masked_fill(call.visible(), 0).any()):
            call.mask, call.causal = None, False
        return call


def supplied_by_user(function: Callable) -> bool:
    """Return True unless an attention function comes with transformers."""
    while isinstance(function, functools.partial):
        function = function.func
    return not str(getattr(function, "__module__", "")).startswith("transformers.")


def require_read_kernel(module: nn.Module, name: str) -> None:
    """Raise if an attention function keeps its mask to itself, before it runs.

    A kernel from the hub ("owner/name") or a flash one takes its window and its lengths as
    arguments, so a mask of None does not mean that every key is seen; flex attention compiles a
    function of positions, which fails while its functions are watched.
    """
    if "fla" in name or "flex" in name or "/" in name:
        raise unread_kernel(module, name)


def unread_kernel(module: nn.Module, name: str) -> UnreadableAttention:
    """Return the error of an attention function whose mask cannot be read."""
    return UnreadableAttention(
        f"{type(module).__name__} runs the kernel {name!r}, whose mask cannot be read; load the "
        "model with attn_implementation='sdpa' or 'eager' (attention= of interp.load, --attention "
        "on the command line, set_attn_implementation of a loaded model)"
    )


def _close(got: Tensor, z: Tensor) -> bool:
    narrow = min((z.dtype, torch.float32), key=lambda t: -torch.finfo(t).eps)
    allowed = _ROUNDINGS * torch.finfo(narrow).eps * precise(z).abs().max().clamp_min(1e-30)
    return bool((precise(got) - precise(z)).abs().max() <= allowed)


def built(mask: Any) -> Any:
    """Return the matrix of a mask that was not built so far; any other mask as it is."""
    return mask.whole() if hasattr(mask, "whole") else mask


@dataclass(eq=False)
class Stretches:
    """Calls of one forward of a packed attention, until the last of them ran."""

    expected: int
    calls: list[ComputedCall] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    def add(self, call: ComputedCall, out: Tensor) -> ComputedCall | None:
        """Add a call; return the joint call once all are there."""
        self.calls.append(call)
        self.outputs.append(out)
        return as_batch(self.calls) if len(self.calls) == self.expected else None

    def write(self, z: Tensor) -> None:
        """Replace the outputs of all calls by those of an edited joint call."""
        for i, (call, out) in enumerate(zip(self.calls, self.outputs, strict=True)):
            mine = z[i : i + 1, :, : call.z.shape[2]]
            out.copy_(mine.to(out.dtype).transpose(1, 2).reshape(out.shape))


def as_batch(calls: Sequence[ComputedCall]) -> ComputedCall:
    """Return calls over stretches of one row as one call, `[stretch, head, pos, d]`."""
    lengths = [call.q.shape[2] for call in calls]
    first, longest = calls[0], max(lengths)

    def stacked(parts: Sequence[Tensor]) -> Tensor:
        padded = (torch.nn.functional.pad(x, (0, 0, 0, longest - x.shape[2])) for x in parts)
        return torch.cat(list(padded))

    mask = None
    if min(lengths) < longest:
        there = torch.arange(longest) < torch.tensor(lengths)[:, None]
        # a padded query sees the first key, so that its row is not empty
        seen = there[:, None] & (there[:, :, None] | (torch.arange(longest) == 0))
        mask = seen[:, None].to(first.q.device)
    return ComputedCall(
        stacked([c.q for c in calls]),
        stacked([c.k for c in calls]),
        stacked([c.v for c in calls]),
        stacked([c.z for c in calls]),
        scale=first.scale,
        mask=mask,
        softcap=first.softcap,
        sinks=first.sinks,
        owner=first.owner,
    )


PACKED = "cu_seqlens"  # argument of attentions that read the pictures of a batch in one row


@cache
def _takes_stretches(kind: type[nn.Module]) -> bool:
    return PACKED in inspect.signature(kind.forward).parameters


def packed_modules(model: nn.Module) -> list[nn.Module]:
    """Return the attention modules whose inputs are packed; blocks around them are left out."""
    modules = [m for m in model.modules() if _takes_stretches(type(m))]
    return [m for m in modules if not any(o is not m and o in set(m.modules()) for o in modules)]
