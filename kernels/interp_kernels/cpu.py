"""Compiled CPU backend: all cores, tiles that fit in the cache, no stored pattern.

A task consists of some heads and queries of one prompt; tasks share only their inputs and the
column sums of a head, which are in float64, so that the order of addition does not show. Single
weights are computed from the log-sum-exp, as in the chunked backend; the rest comes from one
compiled pass.
"""

from __future__ import annotations

import importlib.util
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from interp_kernels import stock
from interp_kernels.bias_rows import BiasRows
from interp_kernels.blockwise import finish, start
from interp_kernels.cheap import entry_mass, from_lse
from interp_kernels.chunked import SPARSE_PAIRS, sort_by_cost
from interp_kernels.errors import TooLittleMemory
from interp_kernels.masks import ALL, key_range, narrow
from interp_kernels.reductions import (
    Diagonal,
    KeySetMass,
    LogSumExp,
    Mass,
    Moments,
    Output,
    Reduction,
    ResultNorm,
    TopK,
)
from interp_kernels.reference import result_norm
from interp_kernels.targets import target_entries

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.backends import Request, Value
    from interp_kernels.cpu_call import Call, Sizes
    from interp_kernels.cpu_layout import Given, Work
    from interp_kernels.problem import Attention, AttentionShape

# Queries and keys of a tile, whose scores fit in a core's second-level cache. Tall tiles read keys
# and values less often. Wide ones compute less above the diagonal, which matters in SHORT contexts;
# suit packed keys, which save time in LONG ones; and column sums, for which whole rows stay in
# memory.
TALL, WIDE = (256, 1024), (128, 2048)
SHORT, LONG = 2048, 8192
# Tasks per thread: with few, threads wait long for the last one. But the parts of a head cost more
# than the whole head, so more than LEAST tasks are made only if each has SCORES or more. Each task
# also costs some sequential calls in Python, so heads with few scores go TOGETHER.
LEAST, SHARES = 4, 16
SCORES, TOGETHER = 1 << 24, 1 << 23
# Scores of a task at most, about a third of a second: a call can be ended between two tasks.
LONGEST = 1 << 28
# Features with a separate compiled pass, since their code would slow every compilation.
RARE = (TopK, Moments)
# Positions at which predicates are evaluated at a time, for all heads.
TARGETS = 1 << 22


@cache
def missing() -> str | None:
    """Name the missing one of numba and the BLAS of scipy or torch, or return None."""
    for package in ("numba", "scipy", "threadpoolctl"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed; pip install 'interp[kernels]'"
    return None


def unsupported(attention: Attention, reductions: Sequence[Reduction]) -> str | None:
    """Refuse float64, and tensors that are not on the CPU."""
    if attention.q.device.type != "cpu":
        return f"the tensors are on {attention.q.device}; it supports the CPU only"
    if attention.q.dtype == torch.float64:
        return "it computes in float32, and the inputs are float64; use 'chunked'"
    return None


def workspace(shape: AttentionShape, reductions: Sequence[Reduction], block: int | None) -> int:
    """Return the workspace of a pass for all reductions."""
    from interp_kernels.cpu_call import Sizes

    sizes = Sizes(shape, reductions)
    return pass_workspace(shape, sizes, block or tile_size(shape, sizes)[0])


def pass_workspace(shape: AttentionShape, sizes: Sizes, block: int) -> int:
    """Return bytes of all threads' tiles, row statistics, float32 copies and float64 sums."""
    from interp_kernels.cpu_call import packed_tiles, work_shapes

    rows, tile = min(block, max(1, shape.query)), tile_size(shape, sizes)[1]
    threads = torch.get_num_threads()
    thread = 4 * sum(m * n for m, n in work_shapes(sizes, shape, rows, tile))
    thread += 4 * packed_tiles(shape, rows, tile) * tile * shape.d
    heads = shape.batch * shape.head
    # With few heads, threads share the queries of a head, each with separate column sums.
    columns = 8 * sizes.column * (heads + 4 * threads)
    table = heads * shape.query * (4 * sizes.row + 8 * (1 + sizes.k))
    lines = 4 * (heads * shape.key * (sizes.n_right + sizes.n_held))
    targets = len(sizes.dense) * min(max(TARGETS, rows * shape.key), shape.query * shape.key)
    copies = shape.batch * shape.kv_head * shape.key * (shape.d + shape.d_v)
    copies += heads * shape.query * (shape.d + shape.d_v)
    return threads * thread + columns + table + lines + 2 * targets + 4 * copies


def tile_size(shape: AttentionShape, sizes: Sizes) -> tuple[int, int]:
    """Return queries and keys of a tile."""
    return TALL if SHORT <= shape.key < LONG and not sizes.columns else WIDE


def is_rare(attention: Attention, reductions: Sequence[Reduction]) -> bool:
    """Return True if the pass with the code of rarely used features is needed."""
    return attention.activation != "softmax" or any(isinstance(r, RARE) for r in reductions)


def run(request: Request) -> dict[str, Value]:
    """Compute single weights from the log-sum-exp, the rest in one compiled pass."""
    attention = request.attention
    light, looked_up, heavy = sort_by_cost(request.reductions)
    output, lse = request.output, request.lse
    listed = {} if narrow(attention) else sparse_masses(attention, heavy)
    heavy = [r for r in heavy if r.name not in listed]
    if heavy:  # these cost nothing in addition to rows that are computed anyway
        heavy += [r for r in looked_up if isinstance(r, KeySetMass | Diagonal)]
        looked_up = [r for r in looked_up if r not in heavy]
    needs_lse = attention.normalised and bool(looked_up or listed)
    # The norm of an output rounded to 16 bits would be less exact than ours.
    rounded = attention.q.element_size() < 4 and any(isinstance(r, ResultNorm) for r in light)
    if not heavy and stock.serves(attention) and not rounded:
        wants_output = output is None and any(not isinstance(r, LogSumExp) for r in light)
        wants_lse = lse is None and (needs_lse or any(isinstance(r, LogSumExp) for r in light))
        if wants_output or wants_lse:
            stock_output, stock_lse = stock.output_and_lse(attention)
            output = stock_output if output is None else output
            lse = stock_lse if lse is None else lse

    found: dict[str, Value] = {}
    for reduction in light:
        if isinstance(reduction, LogSumExp) and lse is not None:
            found[reduction.name] = lse
        elif isinstance(reduction, Output) and output is not None:
            found[reduction.name] = output
        elif isinstance(reduction, ResultNorm) and output is not None:
            found[reduction.name] = result_norm(output.to(attention.work_dtype), reduction.w_o)
        else:
            heavy.append(reduction)
    inner = LogSumExp(name="log-sum-exp to look weights up with")
    if needs_lse and lse is None:
        heavy.append(inner)
    found |= in_one_pass(request, heavy)
    if inner.name in found:
        lse = found.pop(inner.name)
        assert isinstance(lse, torch.Tensor), "one number per row"
    for reduction in looked_up:
        found[reduction.name] = from_lse(reduction, attention, lse)
    for name, where in listed.items():
        found[name] = entry_mass(attention, where, lse)
    return found


def sparse_masses(attention: Attention, reductions: Sequence[Reduction]) -> dict[str, Tensor]:
    """Return the entries of each predicate that holds at few positions."""
    most = SPARSE_PAIRS * attention.shape.batch * attention.shape.query
    found = {}
    for reduction in reductions:
        if isinstance(reduction, Mass) and reduction.runs is None:
            entries = target_entries(attention, reduction, most=most)
            if entries is not None:
                found[reduction.name] = entries
    return found


def in_one_pass(request: Request, reductions: Sequence[Reduction]) -> dict[str, Value]:
    """Compute every reduction that needs whole rows, with as many threads as torch uses."""
    if not reductions:
        return {}
    attention, shape = request.attention, request.attention.shape
    if 0 in (shape.batch, shape.query, shape.key):
        empty = {r.name: start(r, attention) for r in reductions}
        return {r.name: finish(r, attention, empty[r.name]) for r in reductions}
    from interp_kernels.cpu_blas import blas
    from interp_kernels.cpu_call import Call, Sizes
    from interp_kernels.cpu_pass import attend
    from interp_kernels.cpu_threads import share_out

    sizes = Sizes(shape, reductions)
    block, tile = rows_within(request, sizes), tile_size(shape, sizes)[1]
    call, library = Call(attention, reductions, sizes), blas()
    rare = is_rare(attention, reductions)
    summed = bool(sizes.columns)
    compiled, flags = attend(rare, summed), [True if asked else None for asked in (rare, summed)]
    numbers = call.numbers(library, block, tile)
    threads, lock, works = torch.get_num_threads(), Lock(), deque["Work"]()
    sums = [columns.numpy() for columns in call.columns]
    given = [call.heads(batch) for batch in range(shape.batch)]
    into = [call.into(batch, columns) for batch, columns in enumerate(sums)]

    def perform(number: int) -> None:
        request.going_on()
        task, work = tasks[number], works.pop()
        columns, results = sums[task.batch], into[task.batch]
        # others add to the same head's column sums: separate until the task is done
        if task.shared:
            own = np.zeros((1, columns.shape[1]))
            results = results._replace(columns=own)
        with library.one_thread():
            compiled(plans[number], *flags, *given[task.batch], task.given, results, work)
        if task.shared:
            with lock:
                columns[task.heads.start] += own[0]
        works.append(work)

    for tasks in waves(call, block, threads):
        # Before the threads start, since they run Python one at a time.
        plans = plans_of(tasks, numbers, apart=isinstance(attention.bias, BiasRows))
        while len(works) < min(threads, len(tasks)):
            works.append(call.work(block, tile, library.packing))
        share_out(perform, range(len(tasks)), threads)
    return {r.name: call.value(r) for r in reductions}


class Task(NamedTuple):
    """Some heads and queries of one prompt."""

    batch: int
    heads: range
    queries: range
    given: Given
    first: tuple[int, int]  # query and key of what is computed apart
    shared: bool


def plans_of(tasks: Sequence[Task], numbers: np.ndarray, *, apart: bool) -> np.ndarray:
    """Return the parameters of each task for the compiled pass, after the common ones.

    Args:
        tasks: tasks that may run at once.
        numbers: the common parameters.
        apart: rows of the bias begin at the first query of the tasks.
    """
    plans = np.repeat(numbers, len(tasks))
    for plan, task in zip(plans, tasks, strict=True):
        plan["head"], plan["head_end"] = task.heads.start, task.heads.stop
        plan["query"], plan["query_end"] = task.queries.start, task.queries.stop
        plan["target_query"], plan["target_key"] = task.first
        plan["bias_first"] = task.first[0] if apart else 0
        plan["column_head"] = task.heads.start if task.shared else 0
    return plans


def waves(call: Call, block: int, threads: int) -> Iterator[list[Task]]:
    """Group tasks that may run at once, in several waves if predicates are evaluated between."""
    shape, attention = call.shape, call.attention
    apart = bool(call.sizes.dense) or isinstance(attention.bias, BiasRows)
    rows = rows_apart(attention, block) if apart else shape.query
    tasks: list[Task] = []
    for batch in range(shape.batch):
        for low in range(0, shape.query, rows):
            queries = slice(low, min(shape.query, low + rows))
            keys = key_range(attention, queries, slice(batch, batch + 1)) if apart else ALL
            given = call.given(batch, queries, keys)
            first = (low, (keys.start or 0) if apart else 0)
            some = range(queries.start, queries.stop)
            for heads, part in shares(shape.head, some, shape.key, block, threads):
                shared = call.sizes.columns and part != some
                tasks.append(Task(batch, heads, part, given, first, shared))
            if apart:
                yield tasks
                tasks = []
    if tasks:
        yield tasks


def rows_apart(attention: Attention, block: int) -> int:
    """Return the queries whose predicates, or rows of a bias, are computed at a time."""
    shape = attention.shape
    width = shape.key
    if attention.window is not None and narrow(attention):  # half of the positions are visible
        return max(1, attention.window // block) * block
    if isinstance(attention.bias, BiasRows):
        width *= prod(attention.bias.shape[:2])
    return max(block, TARGETS // width // block * block)


def shares(
    heads: int, queries: range, keys: int, block: int, threads: int
) -> Iterator[tuple[range, range]]:
    """Split heads and queries into enough tasks to keep all threads busy, the longest first."""
    scores = len(queries) * keys
    if threads == 1 and heads * scores <= LONGEST:
        yield range(heads), queries
        return
    least, most = (-(-tasks * threads // heads) for tasks in (LEAST, SHARES))
    parts = max(least, min(most, scores // SCORES), -(-scores // LONGEST))
    parts = min(parts, -(-len(queries) // block))
    step = -(-len(queries) // (parts * block)) * block
    few = TOGETHER // scores if parts == 1 else 1
    some = max(1, min(few, -(-heads // (2 * threads))))
    # later queries see more keys, so they come first
    for low in reversed(range(queries.start, queries.stop, step)):
        for head in range(0, heads, some):
            yield range(head, min(heads, head + some)), range(low, min(queries.stop, low + step))


def rows_within(request: Request, sizes: Sizes) -> int:
    """Return queries at a time: as requested, or as many as memory allows."""
    shape = request.attention.shape
    rows = min(request.block or tile_size(shape, sizes)[0], shape.query)
    while (need := pass_workspace(shape, sizes, rows)) > (request.memory or need):
        if rows == 1 or request.block is not None:
            raise TooLittleMemory(
                f"a block of {rows} queries needs {need:,} bytes; {request.memory:,} are free. "
                "Use a smaller block, fewer reductions or a shorter context"
            )
        rows //= 2
    return rows
