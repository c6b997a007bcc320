"""The Triton backend: row statistics in one pass over tiles, column statistics in a second.

Runs on CUDA tensors; on CPU tensors only through Triton's interpreter (TRITON_INTERPRET=1, set
before triton is imported), which is for tests. Float32 products are exact unless
`torch.set_float32_matmul_precision` allows TF32. Sums are float32.

Single weights (`cheap.py`), evaluation of predicates (`targets.py`) and `TopK` (`chunked.py`) are
computed by PyTorch instead of Triton, on the same device in blocks of bounded memory.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import torch

from interp_kernels import chunked
from interp_kernels import reductions as ask
from interp_kernels.bias_rows import BiasRows
from interp_kernels.blockwise import finish, start
from interp_kernels.cheap import entry_mass, from_lse
from interp_kernels.errors import TooLittleMemory
from interp_kernels.masks import ALL, Part, key_range
from interp_kernels.moving import moved
from interp_kernels.reductions import Chosen, Reduction, ScoreMoments
from interp_kernels.reference import one_hot, result_norm
from interp_kernels.targets import target_entries, target_tile

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.backends import Request, Value
    from interp_kernels.problem import Attention, AttentionShape

WIDEST = 256
# Positions of a predicate evaluated at a time, if memory allows; temporary bytes of each (an index
# or two, comparisons, the bit tile).
STRIPE, PER_POSITION = 1 << 24, 32
# Outputs of the forward kernel that each row statistic needs.
FORWARD = {
    ask.Entropy: "entropy",
    ask.Largest: "top",
    ask.Distance: "distance",
    ask.Moments: "moments",
    ask.LogSumExp: "lse",
}
VALUES = (ask.Output, ask.ResultNorm)
COLUMNS = (ask.Received, ask.ReceivedValueWeighted)
SEGMENTS = (ask.SegmentMass, ask.SegmentToSegment)


def interpreted() -> bool:
    """Return True if Triton's kernels run as Python on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def missing() -> str | None:
    """Name the missing one of Triton and a device to run it on, or return None."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; pip install 'interp[triton]'"
    if not interpreted():
        if torch.cuda.is_available():
            return None
        return "there is no CUDA device (TRITON_INTERPRET=1 runs it in Python, for tests)"
    triton, numpy = (
        tuple(int(part) for part in importlib.metadata.version(name).split(".")[:2])
        for name in ("triton", "numpy")
    )
    if triton < (3, 7) and numpy >= (2, 4):
        return (
            f"the interpreter of triton {'.'.join(map(str, triton))} fails with numpy "
            f"{'.'.join(map(str, numpy))}; use triton 3.7 or numpy 2.3"
        )
    return None


def unsupported(attention: Attention, reductions: Sequence[Reduction]) -> str | None:
    """Refuse tensors on other devices, float64, and heads wider than a tile."""
    at = attention.shape
    if attention.q.device.type != "cuda" and not interpreted():
        return f"the tensors are on {attention.q.device}; it takes tensors on a CUDA device"
    if attention.q.dtype == torch.float64:
        return "the tensors are float64; its sums are float32"
    if max(at.d, at.d_v) > WIDEST:
        return f"the head size is {max(at.d, at.d_v)}; it takes up to {WIDEST}"
    if attention.ranges is not None or isinstance(attention.bias, BiasRows):
        return "the mask is given as ranges of keys or in rows; use 'chunked'"
    if attention.relative_bias is not None and attention.bias is not None:
        return "there is a bias beside a relative bias; use 'chunked'"
    return None


def workspace(shape: AttentionShape, reductions: Sequence[Reduction], block: int | None) -> int:
    """Return bytes of float32 rows, segments, their masses and a stripe of predicate positions."""
    rows = shape.batch * shape.head * shape.query
    total = 4 * rows + shape.batch * (shape.key + shape.query)  # log-sum-exp, padding as bytes
    for reduction in reductions:
        match reduction:
            case ask.Output() | ask.ResultNorm():
                total += 8 * rows * shape.d_v
            case ask.SegmentMass(n=n):
                total += 4 * n * (shape.batch * shape.key + rows)
            case ask.SegmentToSegment(n_query=n_query, n_key=n_key):
                total += 4 * n_key * (shape.batch * shape.key + rows)
                total += 4 * n_query * shape.batch * shape.query
            case ask.LeftProduct() | ask.RightProduct():
                total += 4 * reduction.vectors.numel()
            case ask.Received() | ask.ReceivedValueWeighted() | ask.PooledMap():
                total += 4 * prod(reduction.output_shape(shape))
    masses = [r for r in reductions if isinstance(r, ask.Mass)]
    if masses:
        total += 8 * 4 * rows + PER_POSITION * stripe_rows(shape, block) * shape.batch * shape.key
    beside = [r for r in reductions if isinstance(r, ask.TopK)]
    return total + (chunked.workspace(shape, beside, block) if beside else 0)


def stripe_rows(shape: AttentionShape, block: int | None) -> int:
    """Return the queries whose predicates are evaluated at a time."""
    rows = block or STRIPE // max(1, shape.batch * shape.key)
    return max(1, min(rows, shape.query))


def run(request: Request) -> dict[str, Value]:
    """Run the forward kernel, then everything that needs its log-sum-exp."""
    attention, shape = request.attention, request.attention.shape
    if 0 in (shape.batch, shape.query, shape.key):
        return empty(request)
    device = attention.q.device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        return Pass(request).values()


def empty(request: Request) -> dict[str, Value]:
    """Return the results of a call without queries or keys."""
    attention = request.attention
    found: dict[str, Value] = {}
    for r in request.reductions:
        if r.needs == "lse":
            lse = start(ask.LogSumExp(), attention) if attention.normalised else None
            assert lse is None or isinstance(lse, torch.Tensor), "one number per row"
            found[r.name] = from_lse(r, attention, lse)
        else:
            found[r.name] = finish(r, attention, start(r, attention))
        if isinstance(r, ask.Output) and request.output is not None:
            found[r.name] = request.output
    return found


class Pass:
    """Run of one call through the kernels."""

    def __init__(self, request: Request):
        from interp_kernels import gpu_columns, gpu_forward

        self.request, self.attention = request, request.attention
        self.forward, self.second = gpu_forward, gpu_columns
        self.block = request.block
        device = self.attention.q.device
        if device.type == "cuda":
            asked = [moved(r, device) for r in request.reductions]
            self.request = request = replace(request, reductions=tuple(asked))
        self.rows_at_once = self.fitting_stripe()

    def fitting_stripe(self) -> int:
        """Return queries of a predicate at a time: as requested, or as many as memory allows."""
        shape, block = self.attention.shape, self.block
        reductions, memory = self.request.reductions, self.request.memory
        rows = stripe_rows(shape, block)
        while (need := workspace(shape, reductions, rows)) > (memory or need):
            if rows == 1 or block is not None:
                raise TooLittleMemory(
                    f"a stripe of {rows} queries needs {need:,} bytes; {memory:,} are free. "
                    "Use a smaller block, fewer reductions or a shorter context"
                )
            rows //= 2
        return rows

    def values(self) -> dict[str, Value]:
        """Compute every reduction by name."""
        attention, asked = self.attention, self.request.reductions
        listed, dense = self.sparse_and_dense()
        found = self.rows([r for r in asked if not isinstance(r, ask.Mass)], bool(listed or dense))
        lse = self.lse
        for name, where in listed.items():
            found[name] = entry_mass(attention, where, lse)
        for first in range(0, len(dense), 8):
            found |= self.masses(dense[first : first + 8])
        for r in asked:
            if r.needs == "lse":
                found[r.name] = from_lse(r, attention, lse)
            elif isinstance(r, SEGMENTS):
                found[r.name] = self.segments(r)
            elif isinstance(r, ask.RightProduct):
                found[r.name] = self.product(r.vectors)
            elif isinstance(r, ask.PooledMap):
                found[r.name] = self.second.pooled(attention, self.kernel_lse, r.block, self.block)
            elif isinstance(r, ask.LeftProduct):
                _, product = self.second.columns(
                    attention, self.kernel_lse, vectors=r.vectors.float(), block=self.block
                )
                found[r.name] = _made(product)
        found |= self.received([r for r in asked if isinstance(r, COLUMNS)])
        beside = [r for r in asked if isinstance(r, ask.TopK)]
        return found | (chunked.in_blocks(self.request, beside) if beside else {})

    def rows(self, asked: Sequence[Reduction], lse_needed: bool) -> dict[str, Value]:
        """Return results of the forward kernel; stores the log-sum-exp for later kernels."""
        attention, given = self.attention, self.request
        flags = {FORWARD[type(r)] for r in asked if type(r) in FORWARD}
        later = any(
            r.needs != "row" and not isinstance(r, ask.Targets | ask.SegmentToSegment)
            for r in asked
        )
        if attention.normalised and given.lse is None and (lse_needed or later):
            flags.add("lse")
        flags -= {"lse"} if given.lse is not None else set()
        norms = [r for r in asked if isinstance(r, ask.ResultNorm)]
        wants_output = given.output is None and any(isinstance(r, VALUES) for r in asked)
        rows = None
        if flags or wants_output:
            rows = self.forward.forward(
                attention,
                frozenset(flags),
                values=attention.v if wants_output else None,
                out_dtype=torch.float32 if norms else attention.v.dtype,
                split=bool(norms),
                block=self.block,
            )
        self.lse = given.lse if given.lse is not None or rows is None else rows.lse
        output = given.output if rows is None or rows.out is None else rows.out
        found: dict[str, Value] = {}
        for r in asked:
            match r:
                case ask.Output():
                    assert output is not None
                    own = output if output is given.output else output.to(attention.v.dtype)
                    found[r.name] = own
                case ask.ResultNorm():
                    assert output is not None
                    found[r.name] = self.norm(output, r.w_o)
                case ask.LogSumExp():
                    found[r.name] = _made(self.lse)
                case ask.Largest():
                    assert rows is not None
                    found[r.name] = Chosen(_made(rows.top), _made(rows.top_key))
                case ask.Moments():
                    assert rows is not None
                    moments = (rows.mean, rows.variance, rows.maximum)
                    found[r.name] = ScoreMoments(*(_made(x) for x in moments))
                case ask.Entropy() | ask.Distance():
                    assert rows is not None
                    found[r.name] = _made(getattr(rows, FORWARD[type(r)]))
        return found

    @property
    def kernel_lse(self) -> Tensor:
        """Log-sum-exp per row for the kernels; arbitrary for weights that are not normalised."""
        shape, device = self.attention.shape, self.attention.q.device
        if self.lse is None:
            return torch.zeros(shape.batch, shape.head, shape.query, device=device)
        return self.lse.float().contiguous()

    def norm(self, output: Tensor, w_o: Tensor | None) -> Tensor:
        """Compute the norm of each head's output, in blocks of queries."""
        if w_o is None:
            return result_norm(output.float())
        shape = self.attention.shape
        step = max(1, STRIPE // max(1, shape.batch * shape.head * w_o.shape[-1]))
        w_o = w_o.float()
        return torch.cat([result_norm(x.float(), w_o) for x in output.split(step, dim=2)], dim=2)

    def product(self, vectors: Tensor, *, sizes: bool = False) -> Tensor:
        """Compute P @ vectors, or |P| @ vectors: the forward kernel with other values."""
        shape = self.attention.shape
        values = vectors.float().expand(shape.batch, shape.head, -1, -1)
        if values.shape[-1] == 0:
            return values.new_zeros(shape.batch, shape.head, shape.query, 0)
        found = self.forward.forward(
            self.attention, frozenset(), values=values, sizes=sizes, block=self.block
        )
        return _made(found.out)

    def segments(self, asked: ask.SegmentMass | ask.SegmentToSegment) -> Tensor:
        """Compute masses per key segment, and their sums over query segments."""
        if isinstance(asked, ask.SegmentMass):
            held = one_hot(asked.labels, asked.n, torch.float32)[:, None]
            return self.product(held, sizes=True)
        held = one_hot(asked.key_labels, asked.n_key, torch.float32)[:, None]
        rows = one_hot(asked.query_labels, asked.n_query, torch.float32)[:, None]
        return rows.mT @ self.product(held, sizes=True)

    def received(self, asked: Sequence[Reduction]) -> dict[str, Value]:
        """Compute column sums, plain or times the norm of the value."""
        if not asked:
            return {}
        total, _ = self.second.columns(
            self.attention, self.kernel_lse, received=True, block=self.block
        )
        total = _made(total)
        v, group = self.attention.v, self.attention.shape.group
        norm = torch.linalg.vector_norm(v, dim=-1, dtype=torch.float32).repeat_interleave(group, 1)
        return {r.name: total if isinstance(r, ask.Received) else total * norm for r in asked}

    def sparse_and_dense(self) -> tuple[dict[str, Tensor], list[ask.Mass]]:
        """Split predicates: entries of the rare ones, and those that hold too often to list."""
        shape = self.attention.shape
        listed: dict[str, Tensor] = {}
        dense = []
        for r in self.request.reductions:
            if isinstance(r, ask.Mass):
                most = chunked.SPARSE_PAIRS * shape.batch * shape.query
                tile = self.rows_at_once * shape.key
                where = target_entries(self.attention, r, most=most, tile=tile)
                if where is None:
                    dense.append(r)
                else:
                    listed[r.name] = where
        return listed, dense

    def masses(self, asked: Sequence[ask.Mass]) -> dict[str, Value]:
        """Compute masses of up to 8 predicates, evaluated in stripes of queries, one bit each."""
        attention, shape = self.attention, self.attention.shape
        size = (shape.batch, shape.head, shape.query, len(asked))
        found = torch.zeros(size, device=attention.q.device)
        for first in range(0, shape.query, self.rows_at_once):
            queries = slice(first, min(shape.query, first + self.rows_at_once))
            keys = key_range(attention, queries)
            if keys.start == keys.stop:
                continue
            part = Part(ALL, ALL, queries, keys)
            bits = target_tile(attention, asked[0], part).to(torch.uint8)
            for bit, mass in enumerate(asked[1:], 1):
                bits |= target_tile(attention, mass, part).to(torch.uint8) << bit
            self.second.masses(
                attention, self.kernel_lse, bits, found, queries, keys, block=self.block
            )
        return {r.name: found[..., at].contiguous() for at, r in enumerate(asked)}


def _made(found: Tensor | None) -> Tensor:
    assert found is not None, "requested from a kernel, so computed by it"
    return found
