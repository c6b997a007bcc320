"""Statistics of one attention call, by any backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import torch

from interp_kernels.backends import Request, check_mode, choose, load
from interp_kernels.cheap import check_lse
from interp_kernels.checks import check_dense
from interp_kernels.errors import InvalidAttention, InvalidReduction, TooLittleMemory
from interp_kernels.problem import Attention, AttentionShape
from interp_kernels.reductions import Chosen, LogSumExp, Moments, Output, Reduction, ScoreMoments

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.backends import Value

# Bytes allocated without asking for free memory, which takes as long as a short call's checks.
SMALL = 1 << 26


class Statistics(dict[str, "Value"]):
    """Results by reduction name or reduction object, and the backend that computed them."""

    def __init__(self, values: dict[str, Value], backend: str, mode: str):
        super().__init__(values)
        self.backend = backend
        self.mode = mode

    def __getitem__(self, asked: str | Reduction) -> Value:
        name = asked.name if isinstance(asked, Reduction) else asked
        if name not in self:
            raise KeyError(f"{name!r} was not requested; these were: {', '.join(self)}")
        return super().__getitem__(name)


def attention_statistics(
    attention: Attention,
    reductions: Sequence[Reduction],
    *,
    backend: str = "auto",
    mode: str = "fused",
    block: int | None = None,
    memory: int | None = None,
    output: Tensor | None = None,
    lse: Tensor | None = None,
    going_on: Callable[[], None] = lambda: None,
) -> Statistics:
    """Compute every reduction of one attention call, without gradients.

    Args:
        attention: the attention call.
        reductions: the requested reductions.
        backend: "auto" uses the first of `BACKENDS` that supports the call; any other name is used
            or refused.
        mode: "fused" computes the output as well; "observer" runs beside the model's own kernel:
            the given output is returned unchanged, and a given lse saves computing it.
        block: queries at a time; chosen by the backend unless given. Never changes a result.
        memory: bytes that the call may use beside its inputs; by default the free memory (a call of
            less than 64 MiB does not query it).
        output: the model's own output, [batch, head, query, d_v].
        lse: the model's own log-sum-exp, [batch, head, query].
        going_on: called in between, on the CPU about every second, from any thread; what it raises
            ends the computation.

    Raises:
        InvalidReduction: a reduction does not fit the call, or two have one name.
        BackendUnavailable: the backend cannot run here, or does not support the request.
        PredicateError: a predicate raised or did not return a bool per position.
        TooLittleMemory: not even a block of one query fits.
    """
    if not isinstance(attention, Attention):
        kind = type(attention).__name__
        raise InvalidAttention(f"{kind} is not an Attention; make one of q, k and v")
    mode, reductions = check_mode(mode), listed(reductions)
    check_reductions(attention, reductions)
    check_given(attention, mode, block, output, lse)
    name = choose(backend, attention, reductions)
    if not (memory is None or isinstance(memory, int)):
        raise InvalidReduction(f"memory is {memory!r:.60}; expected a number of bytes")
    limit = memory
    if limit is None and bytes_of(attention.shape, reductions, name, block) > SMALL:
        limit = free_memory(attention.q.device)
    if limit is not None:
        limit = workspace_limit(attention.shape, reductions, name, limit)
    request = Request(attention, tuple(reductions), mode, block, limit, output, lse, going_on)
    with torch.no_grad():
        values = load(name).run(request)
    return Statistics({r.name: values[r.name] for r in reductions}, name, mode)


def estimate_memory(
    shape: Attention | AttentionShape,
    reductions: Sequence[Reduction],
    backend: str = "auto",
    block: int | None = None,
) -> int:
    """Estimate the bytes of a call beside its inputs: results and workspace.

    Args:
        shape: sizes of the call.
        reductions: the requested reductions.
        backend: name of the backend, or "auto".
        block: queries at a time; chosen by the backend unless given.
    """
    if not isinstance(shape, Attention | AttentionShape):
        raise InvalidAttention(f"{shape!r:.60} has no sizes; give an Attention or AttentionShape")
    reductions = listed(reductions)
    attention = shape if isinstance(shape, Attention) else None
    sizes = shape.shape if isinstance(shape, Attention) else shape
    return bytes_of(sizes, reductions, choose(backend, attention, reductions), block)


def bytes_of(
    shape: AttentionShape, reductions: Sequence[Reduction], backend: str, block: int | None
) -> int:
    """Estimate the bytes of a call by a chosen backend: results and workspace."""
    return result_bytes(shape, reductions) + load(backend).workspace(shape, reductions, block)


def result_bytes(shape: AttentionShape, reductions: Sequence[Reduction]) -> int:
    """Return the bytes of the results."""
    total = 0
    for reduction in reductions:
        each = shape.itemsize if isinstance(reduction, Output) else shape.work_itemsize
        each = {Chosen: each + 8, ScoreMoments: 3 * each}.get(kind_of(reduction), each)
        total += each * prod(reduction.output_shape(shape))
    return total


def kind_of(reduction: Reduction) -> type:
    """Return the type of a reduction's result."""
    if isinstance(reduction, Moments):
        return ScoreMoments
    return Chosen if type(reduction).__name__ in ("Largest", "TopK") else torch.Tensor


def listed(reductions: Sequence[Reduction] | Reduction) -> Sequence[Reduction]:
    """Return reductions as a list; one alone is a list of one.

    Raises:
        InvalidReduction: something else is given.
    """
    if isinstance(reductions, Reduction):
        return [reductions]
    if not isinstance(reductions, Sequence) or isinstance(reductions, str):
        raise InvalidReduction(f"{reductions!r:.60} is not a list of reductions, as [Entropy()] is")
    for one in reductions:
        if not isinstance(one, Reduction):
            raise InvalidReduction(
                f"{one!r:.60} is not a reduction; make one, such as Entropy() or TopK(8)"
            )
    return reductions


def check_reductions(attention: Attention, reductions: Sequence[Reduction]) -> None:
    """Check that each reduction fits the call and no two share a name."""
    for reduction in reductions:
        reduction.check(attention.shape)
        if isinstance(reduction, LogSumExp) and not attention.normalised:
            raise InvalidReduction(
                f"{attention.activation} weights are not normalised, so they have no log-sum-exp"
            )
    for name, count in Counter(r.name for r in reductions).items():
        if count > 1:
            raise InvalidReduction(f"{count} reductions are named {name!r}; give each its name=")


def check_given(
    attention: Attention,
    mode: str,
    block: int | None,
    output: Tensor | None,
    lse: Tensor | None,
) -> None:
    """Check the block size, and the model's own tensors, which need observer mode."""
    if block is not None and (not isinstance(block, int) or block < 1):
        raise InvalidReduction(f"block is {block!r}; expected at least 1 query at a time")
    at = attention.shape
    rows = (at.batch, at.head, at.query)
    for name, given, shape in (("output", output, (*rows, at.d_v)), ("lse", lse, rows)):
        if given is None:
            continue
        if mode != "observer":
            raise InvalidAttention(
                f"{name} is a tensor of the model's own kernel; give it with mode='observer'"
            )
        check_dense(name, given)
        if tuple(given.shape) != shape:
            raise InvalidAttention(f"{name} has shape {list(given.shape)}; expected {list(shape)}")
    if lse is not None and not attention.normalised:
        raise InvalidAttention(f"{attention.activation} weights have no log-sum-exp; leave out lse")
    if lse is not None:
        check_lse(attention, lse)


def workspace_limit(
    shape: AttentionShape, reductions: Sequence[Reduction], backend: str, memory: int
) -> int:
    """Return the memory left for the workspace after the results, if one query fits."""
    results = result_bytes(shape, reductions)
    least = load(backend).workspace(shape, reductions, 1)
    if results + least > memory:
        raise TooLittleMemory(
            f"backend {backend!r} needs {results:,} bytes for the results and at least {least:,} "
            f"for its workspace; {memory:,} are free. Use fewer reductions or a shorter context"
        )
    return memory - results


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes on the device, or None where the system does not report them."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            line = next((line for line in lines if line.startswith("MemAvailable:")), None)
    except FileNotFoundError:  # other systems than Linux
        return None
    return None if line is None else int(line.split()[1]) * 1024
