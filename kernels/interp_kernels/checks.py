"""Validation of one attention call; each check costs O(tokens) and names the problem."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from interp_kernels.bias_rows import BiasRows
from interp_kernels.errors import InvalidAttention

if TYPE_CHECKING:
    from torch import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_AXES = {
    "q": "batch, head, query, d",
    "k": "batch, kv_head, key, d",
    "v": "batch, kv_head, key, d_v",
}


def check_dense(name: str, x: object) -> None:
    """Check that an argument is a tensor whose numbers lie one after another in memory."""
    if not isinstance(x, torch.Tensor):
        raise InvalidAttention(f"{name} is a {type(x).__name__}; give a torch tensor")
    if x.layout != torch.strided or x.device.type == "meta" or x.is_nested or x.is_quantized:
        kind = (
            "a tensor without numbers (meta)"
            if x.device.type == "meta"
            else (f"a tensor of the layout {x.layout}, nested or quantised")
        )
        raise InvalidAttention(f"{name} is {kind}; give a dense tensor of numbers")


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Check ranks, dtypes, devices, shapes and head counts of q, k and v."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4:
            raise InvalidAttention(
                f"{name} has shape {list(x.shape)}; expected 4 axes [{_AXES[name]}]"
            )
    if len({q.dtype, k.dtype, v.dtype}) > 1:
        raise InvalidAttention(
            f"q is {q.dtype}, k is {k.dtype}, v is {v.dtype}; convert them to one dtype"
        )
    if q.dtype not in FLOATS:
        raise InvalidAttention(f"q, k, v are {q.dtype}; use float16, bfloat16, float32 or float64")
    if len({q.device, k.device, v.device}) > 1:
        raise InvalidAttention(f"q is on {q.device}, k on {k.device}, v on {v.device}; move to one")
    for axis, name in ((0, "batch"), (1, "kv_head"), (2, "key")):
        if k.shape[axis] != v.shape[axis]:
            raise InvalidAttention(
                f"k {list(k.shape)} and v {list(v.shape)} differ on the {name} axis"
            )
    if q.shape[0] != k.shape[0]:
        raise InvalidAttention(f"q has batch {q.shape[0]}, k has batch {k.shape[0]}")
    if q.shape[3] != k.shape[3] or q.shape[3] == 0:
        raise InvalidAttention(
            f"q has head size {q.shape[3]}, k has {k.shape[3]}; need one size > 0"
        )
    if k.shape[1] == 0 or q.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise InvalidAttention(
            f"{q.shape[1]} query heads cannot share {k.shape[1]} key-value heads evenly; "
            "the first number must be a multiple of the second"
        )


def check_numbers(scale: float, offset: int, window: int | None, softcap: float | None) -> None:
    """Check finite scale, integer offset, window of at least one key, positive soft-cap."""
    if not isinstance(scale, int | float) or not math.isfinite(scale):
        raise InvalidAttention(f"scale is {scale}; expected a finite number")
    if not isinstance(offset, int):
        raise InvalidAttention(f"offset is {offset!r}; expected a whole number of tokens")
    if window is not None and (not isinstance(window, int) or window < 1):
        raise InvalidAttention(f"window is {window!r}; expected at least 1 key, or None")
    number = isinstance(softcap, int | float)
    if softcap is not None and not (number and math.isfinite(softcap) and softcap > 0):
        raise InvalidAttention(f"softcap is {softcap}; expected a positive number, or None")


def check_ranges(ranges: Tensor | None, shape: tuple[int, int, int], device: torch.device) -> None:
    """Check that ranges are two key indices per query, on the device of q."""
    if ranges is None:
        return
    batch, query, key = shape
    fits = ranges.ndim == 3 and ranges.shape[0] in (1, batch) and ranges.shape[1:] == (query, 2)
    if ranges.dtype != torch.int64 or not fits:
        raise InvalidAttention(
            f"ranges are {ranges.dtype} {list(ranges.shape)}; expected int64 [{batch} or 1, "
            f"{query}, 2]: the first key that a query sees and one past the last"
        )
    if ranges.device != device:
        raise InvalidAttention(f"ranges are on {ranges.device}, q on {device}; move them")
    if ranges.numel() and not 0 <= int(ranges.amin()) <= int(ranges.amax()) <= key:
        raise InvalidAttention(
            f"ranges go from {int(ranges.amin())} to {int(ranges.amax())}; there are {key} keys"
        )


def check_relative(bias: Tensor | None, shape: tuple[int, int, int], device: torch.device) -> None:
    """Check that a relative bias is one finite number per head and distance."""
    if bias is None:
        return
    head, query, key = shape
    distances = max(0, query + key - 1)
    fits = bias.ndim == 2 and bias.shape[0] in (1, head) and bias.shape[1] == distances
    if bias.dtype not in FLOATS or not fits:
        raise InvalidAttention(
            f"relative_bias is {bias.dtype} {list(bias.shape)}; expected a float "
            f"[{head} or 1, {distances}]: one number per distance, from 1 - queries to keys - 1"
        )
    if bias.device != device:
        raise InvalidAttention(f"relative_bias is on {bias.device}, q on {device}; move it")
    if not torch.isfinite(bias).all():
        raise InvalidAttention("relative_bias holds NaN or infinity; hide keys by `ranges`")


def checked_bias(
    bias: Tensor | BiasRows, shape: tuple[int, int, int, int], device: torch.device
) -> Tensor | BiasRows:
    """Return the bias with four axes of full or unit size, so that tiles are plain slices."""
    if bias.dtype != torch.bool and bias.dtype not in FLOATS:
        raise InvalidAttention(
            f"bias is {bias.dtype}; use a float to add to the scores, or bool with True = visible"
        )
    if bias.device != device:
        raise InvalidAttention(f"bias is on {bias.device}, q on {device}; move it")
    sizes = (1,) * (4 - bias.ndim) + tuple(bias.shape)
    if bias.ndim > 4 or any(b not in (1, s) for b, s in zip(sizes, shape, strict=True)):
        raise InvalidAttention(
            f"bias {list(bias.shape)} does not broadcast to [batch, head, query, key] "
            f"= {list(shape)}"
        )
    if isinstance(bias, BiasRows):
        if bias.ndim != 4 or tuple(bias.shape[2:]) != shape[2:]:
            raise InvalidAttention(
                f"rows of a bias are of {list(bias.shape)}; expected all queries and keys "
                f"{list(shape[2:])}"
            )
        return bias
    bias = bias.reshape(sizes)
    if bias.dtype != torch.bool and bias.numel():
        top = unexpanded(bias).amax()  # the maximum is NaN if any entry is
        if not top < math.inf:
            raise InvalidAttention(
                f"bias holds {top.item()}; only finite numbers and -inf can be added"
            )
    return bias


def check_padding(
    name: str, padding: Tensor | None, shape: tuple[int, int], device: torch.device
) -> None:
    """Check that a padding mask is bool, with one value per token, on the device of q."""
    if padding is None:
        return
    if padding.dtype != torch.bool or tuple(padding.shape) != shape:
        raise InvalidAttention(
            f"{name} is {padding.dtype} {list(padding.shape)}; expected bool {list(shape)}, "
            "True for a real token"
        )
    if padding.device != device:
        raise InvalidAttention(f"{name} is on {padding.device}, q on {device}; move it")


def check_sinks(sinks: Tensor | None, head: int, activation: str, device: torch.device) -> None:
    """Check that sinks are one finite logit per query head of a softmax."""
    if sinks is None:
        return
    if tuple(sinks.shape) != (head,) or sinks.dtype not in FLOATS:
        raise InvalidAttention(
            f"sinks are {sinks.dtype} {list(sinks.shape)}; expected one float per head [{head}]"
        )
    if activation != "softmax":
        raise InvalidAttention(f"sinks are logits of a softmax; activation is {activation!r}")
    if sinks.device != device:
        raise InvalidAttention(f"sinks are on {sinks.device}, q on {device}; move them")
    if not torch.isfinite(sinks).all():
        head_at = int((~torch.isfinite(sinks)).nonzero()[0])
        raise InvalidAttention(f"sinks hold {sinks[head_at].item()} at head {head_at}")


def check_tokens(tokens: Tensor, shape: tuple[int, int], device: torch.device) -> None:
    """Check that tokens are integers, one per key."""
    if tokens.is_floating_point() or tokens.dtype == torch.bool or tuple(tokens.shape) != shape:
        raise InvalidAttention(
            f"tokens are {tokens.dtype} {list(tokens.shape)}; expected whole numbers {list(shape)}"
        )
    if tokens.device != device:
        raise InvalidAttention(f"tokens are on {tokens.device}, q on {device}; move them")


def checked_starts(
    start: Tensor | Sequence[int] | None, key_padding: Tensor | None, batch: int, key: int
) -> tuple[int, ...]:
    """Return the first prompt position of each batch row, as Python integers."""
    if start is None:
        if key_padding is None or key == 0:
            return (0,) * batch
        first = key_padding.int().argmax(-1)
        return tuple(torch.where(key_padding.any(-1), first, key).tolist())
    try:
        starts = tuple(operator.index(s) for s in start)
    except (TypeError, RuntimeError) as error:
        raise InvalidAttention(f"start is {start!r:.60}; expected {batch} positions") from error
    if len(starts) != batch or any(not 0 <= s <= key for s in starts):
        raise InvalidAttention(
            f"start is {list(starts)}; expected {batch} positions between 0 and {key}"
        )
    return starts


def check_finite(q: Tensor, k: Tensor, v: Tensor) -> float:
    """Check for NaN and infinity; return a bound on q k^T (Cauchy-Schwarz) from vector lengths."""
    lengths = longest(*(unexpanded(x.detach()) for x in (q, k, v)))
    for name, x, length in zip("qkv", (q, k, v), lengths, strict=True):
        # Squares of large finite numbers overflow as well.
        if math.isfinite(length) or torch.isfinite(x).all():
            continue
        where = (~torch.isfinite(x)).nonzero()
        batch, head, position, _ = where[0].tolist()
        value = x[tuple(where[0])].item()
        axis = "head" if name == "q" else "kv_head"
        raise InvalidAttention(
            f"{name} holds {value} at batch {batch}, {axis} {head}, position {position} "
            f"({len(where)} such values in all); look at the layer before"
        )
    return 1.01 * lengths[0] * lengths[1]  # each may be rounded down by 0.4 % in bfloat16


def longest(*tensors: Tensor) -> list[float]:
    """Return the length of the longest vector of each tensor, or of one token's heads if adjacent.

    In the usual layout of models, this takes half the time of smallest and largest entries. It runs
    in the tensor's own dtype, since another one would need a copy.
    """
    if (joined := adjoining(*tensors)) is not None:
        return torch.linalg.vector_norm(joined, dim=-1).amax((0, 1)).tolist()
    found = []
    for x in tensors:
        aside = x.stride(3) == 1 and x.stride(1) == x.shape[3]
        rows = x.transpose(1, 2).flatten(2) if aside else x
        found.append(float(torch.linalg.vector_norm(rows, dim=-1).amax()) if x.numel() else 0.0)
    return found


def adjoining(*tensors: Tensor) -> Tensor | None:
    """Return [batch, token, tensor, number] if all are parts of one projection (GPT-2), else None.

    Read one by one, each would skip the others' memory: at 1,024 tokens that takes twice as long.
    """
    x = tensors[0]
    width = x.shape[1] * x.shape[3]
    fits = x.stride(3) == 1 and x.stride(1) == x.shape[3] and x.numel() > 0
    for number, other in enumerate(tensors):
        fits = fits and other.shape == x.shape and other.stride() == x.stride()
        fits = fits and other.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        fits = fits and other.storage_offset() == x.storage_offset() + number * width
    if not fits:
        return None
    size = (x.shape[0], x.shape[2], len(tensors), width)
    return x.as_strided(size, (x.stride(0), x.stride(2), width, 1))


def check_score_range(q: Tensor, k: Tensor, scale: float, bound: float) -> None:
    """Check that no score exceeds the dtype of the inputs, where the model would overflow.

    Scores are computed one by one only if the bound does not decide it, which is rare.
    """
    # For dtypes other than float16, a quarter of the range is reserved for marks of hidden keys.
    limit = torch.finfo(q.dtype).max / (1 if q.dtype == torch.float16 else 4)
    if abs(scale) * bound <= limit or q.numel() == 0 or k.numel() == 0:
        return
    wide = torch.float32 if q.dtype == torch.float16 else torch.float64
    group = q.shape[1] // k.shape[1]
    for batch in range(q.shape[0]):
        for head in range(q.shape[1]):
            keys = k[batch, head // group].detach().to(wide).mT
            for first in range(0, q.shape[2], 256):
                score = (scale * q[batch, head, first : first + 256].to(wide)) @ keys
                if (top := float(score.abs().max())) > limit:
                    row, key = divmod(int(score.abs().argmax()), score.shape[1])
                    raise InvalidAttention(
                        f"the score of query {first + row} and key {key} (batch {batch}, head "
                        f"{head}) is {top:.3g}, more than {q.dtype} holds ({limit:.3g}); "
                        "run the model in a wider dtype"
                    )


def unexpanded(x: Tensor) -> Tensor:
    """Remove the repetitions of `expand`: one copy suffices to find extremes."""
    for axis, stride in enumerate(x.stride()):
        if stride == 0 and x.shape[axis] > 1:
            x = x.narrow(axis, 0, 1)
    return x
