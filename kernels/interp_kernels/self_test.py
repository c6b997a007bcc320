"""Comparison of every backend with the definition in float64, on the device at hand.

An error may be twice that of plain PyTorch in float32 on the same inputs, plus some rounding of the
largest value. Inputs in 16 bits are held to the float32 figure too, as sums are kept in float32;
only the output may be rounded once to the inputs' dtype.
"""

from __future__ import annotations

import math
import statistics as stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from interp_kernels import reductions as ask
from interp_kernels import reference
from interp_kernels.api import attention_statistics
from interp_kernels.backends import BACKENDS, why_not
from interp_kernels.backward import attention_with_output
from interp_kernels.errors import KernelError
from interp_kernels.moving import moved
from interp_kernels.problem import Attention
from interp_kernels.reductions import Chosen, Reduction, ScoreMoments
from interp_kernels.verdicts import Width

if TYPE_CHECKING:
    from torch import Tensor

ULPS = 8
SIZES = (65, 300)  # tokens of the compared calls: tiles that are not full, and several tiles
TIMED, REPEATS = 1024, 5


@dataclass(frozen=True)
class Compared:
    """Largest error of one result of a backend over all compared calls.

    `error` is infinite where the backend raised or returned NaN; `note` says what happened.
    `call` names the call whose error exceeds what is allowed by the largest factor.
    """

    backend: str
    result: str
    call: str
    error: float
    allowed: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """True if the error is within what is allowed."""
        return self.error <= self.allowed


@dataclass(frozen=True)
class SelfTest:
    """Comparison of the backends on one device, for one width.

    Args:
        width: the sizes and the dtype.
        device: type and number of the device.
        compared: one row per backend and result.
        seconds: per backend the median seconds of a causal call of `TIMED` tokens with its output
            and all row statistics; "sdpa" is PyTorch's own attention, with the output alone.
    """

    width: Width
    device: str
    compared: tuple[Compared, ...]
    seconds: Mapping[str, float]

    def passed(self, backend: str) -> bool:
        """Return True if the backend was compared and every result is right."""
        mine = [row.passed for row in self.compared if row.backend == backend]
        return bool(mine) and all(mine)


def self_test(width: Width, device: torch.device | str) -> SelfTest:
    """Compare every backend that runs on a device with the definition, and measure its speed."""
    device = torch.device(device)
    group = width.head // width.kv_head
    few = min(2, width.kv_head)  # more heads are more of the same work
    small = replace(width, head=few * group, kv_head=few)
    rows: list[Compared] = []
    seconds: dict[str, float] = {}
    for name in BACKENDS:
        if name == "reference" or why_not(name, moved(_call(small, 8, {}), device), ()):
            continue
        rows += _worst(_of_backend(name, small, device))
    timed = {row.backend for row in rows}
    if timed:
        seconds = _seconds(width, device, sorted(timed))
    return SelfTest(width, str(device), tuple(rows), seconds)


def _of_backend(name: str, width: Width, device: torch.device) -> Iterator[Compared]:
    for tokens in SIZES:
        for label, mask in _masks(width, tokens).items():
            call = _call(width, tokens, mask)
            asked, where = every_reduction(call), f"{label}, {tokens} tokens"
            if why_not(name, moved(call, device), asked) is not None:
                continue
            try:
                found = attention_statistics(
                    moved(call, device), [moved(r, device) for r in asked], backend=name
                )
                here = {r.name: moved(found[r.name], "cpu") for r in asked}
            except (KernelError, RuntimeError) as error:
                yield Compared(name, "all results", where, math.inf, 0.0, _line(error))
                continue
            for result, off, allowed in differences(call, asked, here):
                yield Compared(name, result, where, off, allowed)
    yield from _gradients(name, width, device)


def _gradients(name: str, width: Width, device: torch.device) -> Iterator[Compared]:
    """Compare gradients of the output, which blocks recompute from the backend's log-sum-exp."""
    call = _call(width, SIZES[0], {"softcap": 20.0})  # PyTorch has no kernel for it
    if why_not(name, moved(call, device), [ask.Output(), ask.LogSumExp()]) is not None:
        return
    direction = _normal(call.shape.batch, call.shape.head, call.shape.query, call.shape.d_v, seed=9)

    def gradients(make: Callable[[Attention], Tensor], at: Attention) -> list[Tensor]:
        leaves = [x.detach().requires_grad_() for x in (at.q, at.k, at.v)]
        q, k, v = leaves
        out = make(replace(at, q=q, k=k, v=v))
        loss = (out.to(torch.float32) * direction.to(out.device, torch.float32)).sum()
        if out.dtype == torch.float64:
            loss = (out * direction.to(out.device)).sum()
        return [x.cpu() for x in torch.autograd.grad(loss, leaves)]

    def stored(at: Attention) -> Tensor:
        return reference.output(reference.pattern(at), at.v)

    exact = gradients(stored, _as(call, torch.float64))
    plain = gradients(stored, _as(call, torch.float32))
    try:
        found = gradients(lambda at: attention_with_output(at, backend=name), moved(call, device))
    except (KernelError, RuntimeError) as error:
        yield Compared(name, "gradients", "softcap", math.inf, 0.0, _line(error))
        return
    for part, x, y, z in zip("qkv", found, exact, plain, strict=True):
        size = float(y.abs().max())
        allowed = 2 * largest_error(z, y) + ULPS * torch.finfo(torch.float32).eps * max(1, size)
        if x.dtype in (torch.float16, torch.bfloat16):  # weights and gradient are rounded to it
            allowed += 2 * torch.finfo(x.dtype).eps * size
        yield Compared(name, f"gradient of {part}", "softcap", largest_error(x, y), allowed)


def differences(
    attention: Attention,
    reductions: Sequence[Reduction],
    found: Mapping[str, Any],
    ulps: float = ULPS,
) -> Iterator[tuple[str, float, float]]:
    """Yield the name, the error and the allowed error of every result.

    Args:
        attention: the call, on the CPU.
        reductions: what was asked.
        found: the results by name, on the CPU.
        ulps: allowed rounding of the largest value, beside that of plain PyTorch.
    """
    exact = reference.statistics(attention, reductions, torch.float64)
    plain = reference.statistics(attention, reductions)
    weights = [reference.pattern(attention, dtype=dtype) for dtype in (torch.float64, None)]
    eps = torch.finfo(attention.work_dtype).eps
    for r in reductions:
        value, truth, naive = (_tensors(x[r.name]) for x in (found, exact, plain))
        if isinstance(r, ask.Largest | ask.TopK):
            value, truth, naive = _chosen(value, truth[0], naive[0], weights)
        for x, y, z in zip(value, truth, naive, strict=True):
            if x.shape != y.shape:
                raise KernelError(f"{r.name} has shape {list(x.shape)}, not {list(y.shape)}")
            size = float(y[y.isfinite()].abs().max()) if bool(y.isfinite().any()) else 0.0
            allowed = 2 * largest_error(z, y) + ulps * eps * max(1, size)
            if isinstance(r, ask.Output):
                allowed += torch.finfo(x.dtype).eps / 2 * size
            yield r.name, largest_error(x, y), allowed


def _chosen(
    value: tuple[Tensor, ...], exact: Tensor, plain: Tensor, weights: Sequence[Tensor]
) -> list[tuple[Tensor, ...]]:
    """Return what is compared of chosen weights: value, definition and plain PyTorch.

    A size must be that of the definition, and the key must hold the weight. Which of two weights of
    one size is chosen, perhaps of other signs, is left to rounding.
    """
    found, key = value
    held = [
        (
            w.gather(-1, key.view(*w.shape[:3], -1).clamp(min=0))
            * (key.view(*w.shape[:3], -1) >= 0)
        ).view(found.shape)
        for w in weights
    ]
    return [(found.abs(), found), (exact.abs(), held[0]), (plain.abs(), held[1])]


def largest_error(found: Tensor, exact: Tensor) -> float:
    """Return the largest error; infinite for NaN, or where infinities do not agree."""
    finite = exact.isfinite()
    same = torch.equal(found.double()[~finite], exact.double()[~finite])
    if bool(found.isnan().any()) or not same:
        return math.inf
    return float((found.double() - exact.double())[finite].abs().max()) if finite.any() else 0.0


def every_reduction(attention: Attention) -> list[Reduction]:
    """Return one of every reduction that a call has, sized for it."""
    at, draw = attention.shape, torch.Generator().manual_seed(3)
    rows = tuple(sorted({0, at.query // 2, at.query - 1})) if at.query else ()
    keys = tuple(sorted({0, at.key - 1})) if at.key else ()
    key_labels = torch.randint(-1, 3, (at.batch, at.key), generator=draw)
    query_labels = torch.randint(-1, 2, (1, at.query), generator=draw)
    pairs = torch.tensor([[0, 0, 0], [0, at.query, 0], [at.batch - 1, 3, 1], [0, 4, 2], [0, 4, 2]])
    normal = torch.randn(at.head, at.d_v, 5, generator=draw)
    left = torch.randn(1, at.head, 2, at.query, generator=draw)
    right = torch.randn(at.batch, 1, at.key, 3, generator=draw)
    # a predicate looks tokens up at query positions
    square = at.query <= at.key and attention.tokens is not None
    found = [ask.Mass("induction", _induction), ask.Targets("count", _induction)] if square else []
    return [
        ask.Output(),
        *([ask.LogSumExp()] if attention.normalised else []),
        ask.Entropy(),
        ask.Largest(),
        ask.TopK(3),
        *found,
        ask.Mass("previous", _previous),
        ask.Mass("even", _even),
        ask.PairMass("pairs", pairs),
        ask.KeySetMass("first", (0, 1)),
        ask.SegmentMass(key_labels, 3),
        ask.SegmentToSegment(query_labels, key_labels, 2, 3),
        ask.Distance(),
        ask.Moments(),
        ask.ResultNorm(),
        ask.ResultNorm(normal, name="written_norm"),
        ask.Received(),
        ask.ReceivedValueWeighted(),
        ask.PooledMap(4),
        ask.Rows(rows),
        ask.Tile(rows, keys),
        ask.Diagonal((0, 1, 3)),
        ask.LeftProduct(left),
        ask.RightProduct(right),
    ]


def _previous(query: Tensor, key: Tensor, tokens: Tensor) -> Tensor:
    return key == query - 1


def _induction(query: Tensor, key: Tensor, tokens: Tensor) -> Tensor:
    return (key >= 1) & (key <= query) & (tokens[key - 1] == tokens[query])


def _even(query: Tensor, key: Tensor, tokens: Tensor) -> Tensor:
    return key % 2 == 0


def _masks(width: Width, tokens: int) -> dict[str, dict[str, Any]]:
    padding = torch.arange(tokens) >= torch.tensor([[0], [tokens // 3]])
    bias = torch.randn(width.head, tokens, tokens, generator=torch.Generator().manual_seed(7))
    return {
        "causal": {},
        "no mask": {"causal": False},
        "window": {"window": tokens // 4},
        "left padding": {"key_padding": padding},
        "soft-cap": {"softcap": 2.0},
        "sinks": {"sinks": torch.linspace(-3, 3, width.head)},
        "bias": {"bias": bias, "causal": False},
    }


def _normal(*shape: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def _call(width: Width, tokens: int, mask: Mapping[str, Any]) -> Attention:
    draw = torch.Generator().manual_seed(0)
    return Attention(
        q=_normal(2, width.head, tokens, width.d, seed=1).to(width.dtype),
        k=_normal(2, width.kv_head, tokens, width.d, seed=2).to(width.dtype),
        v=_normal(2, width.kv_head, tokens, width.d_v, seed=3).to(width.dtype),
        tokens=torch.randint(0, 5, (2, tokens), generator=draw),
        **{"causal": True, **mask},
    )


def _as(call: Attention, dtype: torch.dtype) -> Attention:
    return replace(call, q=call.q.to(dtype), k=call.k.to(dtype), v=call.v.to(dtype))


def _worst(rows: Iterator[Compared]) -> list[Compared]:
    """Return per result the row whose error is largest in relation to what is allowed."""
    found: dict[tuple[str, str], Compared] = {}
    for row in rows:
        now = found.get((row.backend, row.result))
        if now is None or _factor(row) > _factor(now):
            found[row.backend, row.result] = row
    return list(found.values())


def _factor(row: Compared) -> float:
    return row.error / row.allowed if row.allowed else math.inf


def _seconds(width: Width, device: torch.device, backends: Sequence[str]) -> dict[str, float]:
    """Return median seconds per backend, measured in turn after one run that compiles."""
    call = moved(_call(width, TIMED, {}), device)
    asked = [ask.Output(), ask.LogSumExp(), ask.Entropy(), ask.Largest(), ask.Distance()]

    def sdpa() -> object:
        return torch.nn.functional.scaled_dot_product_attention(
            call.q, call.k, call.v, is_causal=True, enable_gqa=width.head > width.kv_head
        )

    def by(name: str) -> Callable[[], object]:
        return lambda: attention_statistics(call, asked, backend=name)

    runs = {name: by(name) for name in backends}
    if width.d == width.d_v:
        runs["sdpa"] = sdpa
    took: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(REPEATS + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if repeat:
                took[name].append(time.perf_counter() - start)
    return {name: stat.median(times) for name, times in took.items()}


def _tensors(value: Any) -> tuple[Tensor, ...]:
    return tuple(value) if isinstance(value, Chosen | ScoreMoments) else (value,)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
