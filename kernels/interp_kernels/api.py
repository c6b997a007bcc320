"""Ask for statistics of one attention call, from whichever implementation is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import torch

from interp_kernels.backends import Request, check_mode, choose, load
from interp_kernels.cheap import check_lse
from interp_kernels.errors import InvalidAttention, InvalidReduction, TooLittleMemory
from interp_kernels.problem import Attention, AttentionShape
from interp_kernels.reductions import Chosen, LogSumExp, Moments, Output, Reduction, ScoreMoments

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.backends import Value

# Bytes that are taken without a look at what is free, which takes as long as a short call's checks.
SMALL = 1 << 26


class Statistics(dict[str, "Value"]):
    """Results by reduction name, or by the reduction object itself; says what computed them."""

    def __init__(self, values: dict[str, Value], backend: str, mode: str):
        super().__init__(values)
        self.backend = backend
        self.mode = mode

    def __getitem__(self, asked: str | Reduction) -> Value:
        name = asked.name if isinstance(asked, Reduction) else asked
        if name not in self:
            raise KeyError(f"{name!r} was not asked for; there is: {', '.join(self)}")
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
) -> Statistics:
    """Every reduction of one attention call, without gradients.

    Args:
        backend: "auto" takes the first of `BACKENDS` that can; any other name is obeyed or refused.
        mode: "fused" computes the output as well; "observer" stands beside the model's own kernel:
            the output given is returned untouched, and a given lse saves computing it.
        block: queries at a time; chosen by the backend unless given. Never changes a result.
        memory: bytes the call may take beside its inputs; what is free, unless given (a call of
            less than 64 MiB does not look).
        output, lse: the model's own [batch, head, query, d_v] and [batch, head, query].

    Raises:
        InvalidReduction: a reduction that does not fit, or two of one name.
        BackendUnavailable: the backend cannot run here, or cannot do what is asked.
        PredicateError: a predicate raised or returned something else than a bool per position.
        TooLittleMemory: not even a block of one query fits.
    """
    mode = check_mode(mode)
    check_reductions(attention, reductions)
    check_given(attention, mode, block, output, lse)
    name = choose(backend, attention, reductions)
    limit = memory
    if limit is None and bytes_of(attention.shape, reductions, name, block) > SMALL:
        limit = free_memory(attention.q.device)
    if limit is not None:
        limit = workspace_limit(attention.shape, reductions, name, limit)
    request = Request(attention, tuple(reductions), mode, block, limit, output, lse)
    with torch.no_grad():
        values = load(name).run(request)
    return Statistics({r.name: values[r.name] for r in reductions}, name, mode)


def estimate_memory(
    shape: Attention | AttentionShape,
    reductions: Sequence[Reduction],
    backend: str = "auto",
    block: int | None = None,
) -> int:
    """Bytes a call takes beside its inputs: results and workspace."""
    attention = shape if isinstance(shape, Attention) else None
    sizes = shape.shape if isinstance(shape, Attention) else shape
    return bytes_of(sizes, reductions, choose(backend, attention, reductions), block)


def bytes_of(
    shape: AttentionShape, reductions: Sequence[Reduction], backend: str, block: int | None
) -> int:
    """The same of a backend that is chosen."""
    return result_bytes(shape, reductions) + load(backend).workspace(shape, reductions, block)


def result_bytes(shape: AttentionShape, reductions: Sequence[Reduction]) -> int:
    """Bytes of the results themselves."""
    total = 0
    for reduction in reductions:
        each = shape.itemsize if isinstance(reduction, Output) else shape.work_itemsize
        each = {Chosen: each + 8, ScoreMoments: 3 * each}.get(kind_of(reduction), each)
        total += each * prod(reduction.output_shape(shape))
    return total


def kind_of(reduction: Reduction) -> type:
    """The type of a reduction's result."""
    if isinstance(reduction, Moments):
        return ScoreMoments
    return Chosen if type(reduction).__name__ in ("Largest", "TopK") else torch.Tensor


def check_reductions(attention: Attention, reductions: Sequence[Reduction]) -> None:
    """Each is a reduction that fits the call, and no two share a name."""
    for reduction in reductions:
        if not isinstance(reduction, Reduction):
            raise InvalidReduction(
                f"{reduction!r} is no reduction; make one, such as Entropy() or TopK(8)"
            )
        reduction.check(attention.shape)
        if isinstance(reduction, LogSumExp) and not attention.normalised:
            raise InvalidReduction(
                f"{attention.activation} weights are not normalised: they have no log-sum-exp"
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
    """Block is a number of queries; the model's own tensors belong to observer mode and fit."""
    if block is not None and block < 1:
        raise InvalidReduction(f"block is {block}; expected at least 1 query at a time")
    at = attention.shape
    rows = (at.batch, at.head, at.query)
    for name, given, shape in (("output", output, (*rows, at.d_v)), ("lse", lse, rows)):
        if given is None:
            continue
        if mode != "observer":
            raise InvalidAttention(f"{name} is the model's own: give it with mode='observer'")
        if tuple(given.shape) != shape:
            raise InvalidAttention(f"{name} has shape {list(given.shape)}; expected {list(shape)}")
    if lse is not None and not attention.normalised:
        raise InvalidAttention(f"{attention.activation} weights have no log-sum-exp to give")
    if lse is not None:
        check_lse(attention, lse)


def workspace_limit(
    shape: AttentionShape, reductions: Sequence[Reduction], backend: str, memory: int
) -> int:
    """What is left for the workspace once the results are paid for, if one query at a time fits."""
    results = result_bytes(shape, reductions)
    least = load(backend).workspace(shape, reductions, 1)
    if results + least > memory:
        raise TooLittleMemory(
            f"backend {backend!r} needs {results:,} bytes for the results and at least {least:,} "
            f"for its workspace; {memory:,} are free. Ask for fewer reductions or a shorter context"
        )
    return memory - results


def free_memory(device: torch.device) -> int | None:
    """Bytes free on the device, or None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            line = next((line for line in lines if line.startswith("MemAvailable:")), None)
    except FileNotFoundError:  # not a Linux machine
        return None
    return None if line is None else int(line.split()[1]) * 1024
