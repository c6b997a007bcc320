"""One attention call for the compiled pass: arrays in, a table of row statistics out."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp_kernels import cpu_layout as at
from interp_kernels import reductions as ask
from interp_kernels.cpu_layout import Given, Into, Work
from interp_kernels.cpu_masks import Masks
from interp_kernels.masks import Part
from interp_kernels.predicate_runs import own_runs
from interp_kernels.reductions import Chosen, Reduction, ScoreMoments
from interp_kernels.reference import one_hot, result_norm
from interp_kernels.targets import key_set, target_tile

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.backends import Value
    from interp_kernels.cpu_blas import Blas, Packing
    from interp_kernels.problem import Attention, AttentionShape

Held = ask.SegmentMass | ask.SegmentToSegment | ask.KeySetMass
# Runs of keys up to which they are summed one by one; a matrix product is faster for more.
MANY_RUNS = 32
# Packed tiles at a time: MKL requests ten megabytes more than the data for each, and writes none.
AT_MOST = 32


class Sizes:
    """Numbers per row, per key and per prompt that a list of reductions needs."""

    def __init__(self, shape: AttentionShape, reductions: Sequence[Reduction]):
        masses = [r for r in reductions if isinstance(r, ask.Mass)]
        self.listed = next((r.runs for r in masses if r.runs is not None), None)
        self.dense = [r for r in masses if r.runs is not self.listed or r.runs is None]
        self.mass = self.dense + [r for r in masses if r not in self.dense]
        self.own = {r.column: i for i, r in enumerate(self.mass) if r not in self.dense}
        held = [r for r in reductions if isinstance(r, Held)]
        self.runs = [r for r in held if runs_at_most(r) <= MANY_RUNS]
        self.offsets = [r for r in reductions if isinstance(r, ask.Diagonal)]
        self.n_offsets = sum(len(r.offsets) for r in self.offsets)
        self.n_mass = len(self.mass) + sum(_width(r) for r in self.runs) + self.n_offsets
        self.top = [r for r in reductions if isinstance(r, ask.TopK)]
        self.right = [r for r in reductions if isinstance(r, ask.RightProduct)]
        self.held = [r for r in held if r not in self.runs]
        self.left = [r for r in reductions if isinstance(r, ask.LeftProduct)]
        self.pools = [r for r in reductions if isinstance(r, ask.PooledMap)]
        self.k = max((r.k for r in self.top), default=0)
        self.n_right = sum(_width(r) for r in self.right)
        self.n_held = sum(_width(r) for r in self.held)
        self.n_left = sum(r.vectors.shape[-2] for r in self.left)
        self.output = any(isinstance(r, ask.Output | ask.ResultNorm) for r in reductions)
        received = (ask.Received, ask.ReceivedValueWeighted, ask.LeftProduct, ask.PooledMap)
        self.columns = any(isinstance(r, received) for r in reductions)
        self.row = at.N_STATISTICS + self.n_mass + self.k + self.n_right + self.n_held
        squares = [-(-shape.query // r.block) * -(-shape.key // r.block) for r in self.pools]
        self.column = (shape.key * (1 + self.n_left) + sum(squares)) * self.columns


def runs_at_most(held: Held) -> int:
    """Return the largest number of runs of keys with one label in a prompt."""
    if isinstance(held, ask.KeySetMass):
        keys = set(held.keys)
        return sum(key - 1 not in keys for key in keys)
    labels = _labels(held)
    changes = (labels[:, 1:] != labels[:, :-1]).sum(-1)
    return 1 + int(changes.max()) if len(labels) else 0


def _labels(held: ask.SegmentMass | ask.SegmentToSegment) -> np.ndarray:
    return (held.labels if isinstance(held, ask.SegmentMass) else held.key_labels).numpy()


def runs_in(keys: Sequence[int], start: int, column: int) -> list[list[int]]:
    """Return first key, end and column of every run of the keys of a prompt that starts there.

    Some may lie beyond the last key; the pass reads only those within each of its tiles.
    """
    found: list[list[int]] = []
    for key in sorted({start + key for key in keys}):
        if found and found[-1][1] == key:
            found[-1][1] += 1
        else:
            found.append([key, key + 1, column])
    return found


def runs_of(at_key: np.ndarray, n: int, column: int) -> list[list[int]]:
    """Return first key, end and column of every run of one label in 0..n-1."""
    first = [0, *(np.flatnonzero(at_key[1:] != at_key[:-1]) + 1).tolist()]
    runs = zip(first, [*first[1:], len(at_key)], at_key[first].tolist(), strict=True)
    return [[low, high, column + label] for low, high, label in runs if 0 <= label < n]


def _width(reduction: Reduction) -> int:
    """Return the number of table columns of a reduction."""
    if isinstance(reduction, ask.SegmentMass):
        return reduction.n
    if isinstance(reduction, ask.RightProduct):
        return reduction.vectors.shape[-1]
    if isinstance(reduction, ask.Diagonal):
        return len(reduction.offsets)
    return reduction.n_key if isinstance(reduction, ask.SegmentToSegment) else 1


class Call:
    """Inputs and results of one attention call, shared by its tasks."""

    def __init__(self, attention: Attention, reductions: Sequence[Reduction], sizes: Sizes):
        self.attention, self.reductions, self.sizes = attention, reductions, sizes
        self.shape = shape = attention.shape
        self.q, self.k, self.v = (in_rows(x) for x in (attention.q, attention.k, attention.v))
        self.masks = Masks(attention)
        self.left = self._beside([r.vectors for r in sizes.left], axis=2)
        self.lines = self._beside([r.vectors for r in sizes.right] + self._held(), axis=3)
        batch, rows = shape.batch, (shape.head, shape.query)
        width = shape.d_v if sizes.output else 0
        self.output = torch.empty(batch, *rows, width, dtype=torch.float32)
        self.table = torch.empty(batch, sizes.row, *rows, dtype=torch.float32)
        self.keys = torch.empty(batch, *rows, 1 + sizes.k, dtype=torch.int64)
        self.columns = torch.zeros(batch, shape.head, sizes.column, dtype=torch.float64)

    def _runs(self, batch: int) -> np.ndarray:
        column, found = len(self.sizes.mass), []
        for r in self.sizes.runs:
            if isinstance(r, ask.KeySetMass):
                start = self.attention.start[batch]
                found += runs_in(r.keys, start, column)
            else:
                labels = _labels(r)
                found += runs_of(labels[batch % len(labels)], _width(r), column)
            column += _width(r)
        return np.array(found, np.int64).reshape(-1, 3)

    def _held(self) -> list[Tensor]:
        """Return ones at the keys whose weights are summed: [batch, 1, key, n] each."""
        found = []
        for r in self.sizes.held:
            if isinstance(r, ask.KeySetMass):
                found.append(key_set(self.attention, r.keys)[:, None, :, None])
            elif isinstance(r, ask.SegmentMass):
                found.append(one_hot(r.labels, r.n, torch.float32)[:, None])
            elif isinstance(r, ask.SegmentToSegment):
                found.append(one_hot(r.key_labels, r.n_key, torch.float32)[:, None])
        return found

    def _beside(self, parts: list[Tensor], axis: int) -> Tensor:
        """Concatenate tensors to one float32 tensor, expanding prompts and heads."""
        if not parts:
            return torch.empty(1, 1, 0, 0)
        common = [max(p.shape[i] for p in parts) for i in (0, 1)]
        wide = [p.float().expand(*common, -1, -1) for p in parts]
        return torch.cat(wide, axis).contiguous()

    def heads(self, batch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return q, k and v of one prompt."""
        return self.q[batch].numpy(), self.k[batch].numpy(), self.v[batch].numpy()

    def given(self, batch: int, queries: slice, keys: slice) -> Given:
        """Return the inputs of one prompt besides q, k and v.

        Args:
            batch: the prompt.
            queries: the queries whose predicates, and rows of a bias, are computed.
            keys: the keys at which predicates are computed.
        """
        shape, sinks = self.shape, self.attention.sinks
        return Given(
            *self.masks.arrays(batch, queries),
            np.zeros(0) if sinks is None else sinks.double().numpy(),
            self._lines(self.lines[batch % len(self.lines)], shape.key),
            self._left(self.left[batch % len(self.left)], shape.query),
            self.targets(batch, queries, keys),
            self._runs(batch),
            *own_runs(self.sizes.listed, batch, self.sizes.own),
            np.array([o for r in self.sizes.offsets for o in r.offsets], dtype=np.int64),
            np.array([r.block for r in self.sizes.pools], dtype=np.int64),
        )

    def _lines(self, lines: Tensor, keys: int) -> np.ndarray:
        return lines.numpy() if lines.numel() else np.zeros((1, keys, 0), np.float32)

    def _left(self, left: Tensor, queries: int) -> np.ndarray:
        return left.numpy() if left.numel() else np.zeros((1, 0, queries), np.float32)

    def targets(self, batch: int, queries: slice, keys: slice) -> np.ndarray:
        """Return the mask of the predicates on one tile of a prompt, one byte each."""
        part = Part(slice(batch, batch + 1), queries=queries, keys=keys)
        tiles = [target_tile(self.attention, r, part)[0] for r in self.sizes.dense]
        if not tiles:
            return np.zeros((0, 0, 0), np.uint8)
        return torch.stack(tiles).view(torch.uint8).numpy()

    def into(self, batch: int, columns: np.ndarray) -> Into:
        """Return the results of one prompt, with the given column sums."""
        table, keys = self.table[batch].numpy(), self.keys[batch].numpy()
        return Into(self.output[batch].numpy(), table, keys, columns)

    def numbers(self, library: Blas, block: int, tile: int) -> np.ndarray:
        """Return the numbers that are equal for every task."""
        attention, sizes = self.attention, self.sizes
        numbers, packing = np.zeros(1, at.NUMBERS), library.packing
        wants = {type(r) for r in self.reductions}
        for name, value in {
            **{"sgemm": library.address, "pack": packing.pack if packing else 0},
            **{"compute": packing.compute if packing else 0},
            **{"block": block, "tile": tile, "offset": attention.offset},
            **{"causal": attention.causal, "window": attention.window or 0},
            "activation": at.ACTIVATIONS[attention.activation],
            **self.masks.numbers(),
            **{"output": sizes.output, "columns": sizes.columns, "n_mass": sizes.n_mass},
            **{"moments": ask.Moments in wants, "distance": ask.Distance in wants},
            **{"k": sizes.k, "n_right": sizes.n_right, "n_held": sizes.n_held},
            **{"scale": attention.scale, "cap": attention.softcap or 0},
        }.items():
            numbers[name] = value
        return numbers

    def work(self, block: int, tile: int, packing: Packing | None) -> Work:
        """Return the workspace of one thread."""
        shape = self.shape
        number = packed_tiles(shape, block, tile) if packing else 0
        size = packing.size(tile, block, shape.d) if packing and number else 0
        shapes = [*work_shapes(self.sizes, shape, block, tile), (number, -(-size // 4))]
        # A single allocation, since each one in torch lets another thread run first; rows are
        # aligned.
        lengths = [-(-m * n // 16) * 16 for m, n in shapes]
        whole = torch.empty(sum(lengths), dtype=torch.float32).numpy()
        parts, first = [], 0
        for (m, n), length in zip(shapes, lengths, strict=True):
            parts.append(whole[first : first + m * n].reshape(m, n))
            first += length
        scores, spare, sums, peaks, left, column, q, factors, rows, packed = parts
        sums, kept = sums.view(np.float64), np.zeros(at.N_KEPT, np.int64)
        return Work(scores, spare, sums, peaks, left, column, q, factors, rows, packed, kept)

    def value(self, r: Reduction) -> Value:  # noqa: PLR0911 - a table
        """Return one reduction from the finished table."""
        sizes, single = self.sizes, _SINGLE.get(type(r))
        if single is not None:
            return self._column(single)
        first = at.N_STATISTICS
        match r:
            case ask.Output():
                return self.output.to(self.attention.v.dtype)
            case ask.ResultNorm():
                return norms(self.output, r.w_o)
            case ask.Largest():
                return Chosen(self._column(at.LARGEST), self.keys[..., 0].contiguous())
            case ask.Moments():
                names = (at.MEAN, at.VARIANCE, at.HIGHEST)
                return ScoreMoments(*(self._column(c) for c in names))
            case ask.Mass():
                return self._column(first + sizes.mass.index(r))
            case ask.TopK():
                key = self.keys[..., 1 : 1 + r.k].contiguous()
                return Chosen(self._columns(first + sizes.n_mass, r.k), key)
            case ask.RightProduct():
                return self._part(sizes.right, r, first + sizes.n_mass + sizes.k)
            case ask.SegmentToSegment():
                return between_segments(self._masses(r), r.query_labels, r.n_query)
            case ask.SegmentMass():
                return self._masses(r)
            case ask.KeySetMass():
                return self._masses(r)[..., 0]
            case ask.Diagonal():
                return self._part(sizes.offsets, r, first + sizes.n_mass - sizes.n_offsets)
        return self._column_statistic(r).float()

    def _columns(self, first: int, n: int) -> Tensor:
        """Return a copy of some columns; a view would keep all of them in memory."""
        found = self.table[:, first : first + n].permute(0, 2, 3, 1)
        return found.clone(memory_format=torch.contiguous_format)

    def _column(self, index: int) -> Tensor:
        return self.table[:, index].clone()

    def _masses(self, r: Held) -> Tensor:
        sizes, first = self.sizes, at.N_STATISTICS
        if r in sizes.runs:
            return self._part(sizes.runs, r, first + len(sizes.mass))
        return self._part(sizes.held, r, first + sizes.n_mass + sizes.k + sizes.n_right)

    def _part(self, among: Sequence[Reduction], r: Reduction, first: int) -> Tensor:
        """Return the columns of one of several reductions that are adjacent."""
        first += sum(_width(other) for other in among[: among.index(r)])
        return self._columns(first, _width(r))

    def _column_statistic(self, r: Reduction) -> Tensor:
        shape, sizes = self.shape, self.sizes
        received, rest = self.columns[..., : shape.key], self.columns[..., shape.key :]
        match r:
            case ask.Received():
                return received
            case ask.ReceivedValueWeighted():
                norm = torch.linalg.vector_norm(self.attention.v, dim=-1, dtype=torch.float64)
                return received * norm.repeat_interleave(shape.group, dim=1)
            case ask.LeftProduct():
                before = sizes.left[: sizes.left.index(r)]
                first = sum(o.vectors.shape[-2] for o in before) * shape.key
            case ask.PooledMap():
                before = sizes.pools[: sizes.pools.index(r)]
                first = sizes.n_left * shape.key
                first += sum(prod(o.output_shape(shape)[2:]) for o in before)
            case _:
                raise AssertionError(f"{type(r).__name__} is not a statistic of this pass")
        wanted = r.output_shape(shape)
        return rest[..., first : first + prod(wanted[2:])].reshape(wanted)


_SINGLE = {ask.LogSumExp: at.LSE, ask.Entropy: at.ENTROPY, ask.Distance: at.DISTANCE}


def work_shapes(
    sizes: Sizes, shape: AttentionShape, block: int, tile: int
) -> list[tuple[int, int]]:
    """Return shapes of one thread's float32 workspace, in the order of `Work`."""
    keys = shape.key
    # Tile after tile, each contiguous: rows across all keys would be a page apart. A row stride
    # that is a power of two would map all rows to the same few cache lines.
    tiles = -(-keys // tile) if sizes.columns else 1
    return [
        (tiles * block, -(-min(keys, tile) // 16) * 16 + 16),
        (block if sizes.n_held else 0, min(keys, tile) + 16),
        (block, 2 * at.N_SUMS),  # in float64
        (block, 1 + -(-keys // tile)),
        (max(1, sizes.n_left), block),
        (1 + sizes.n_left, min(keys, tile)),
        (block, shape.d),
        (tiles if sizes.columns else 0, block),
        (block, sizes.row),
    ]


def packed_tiles(shape: AttentionShape, block: int, tile: int) -> int:
    """Return the number of key tiles that may be packed at a time, if the library packs."""
    return min(AT_MOST, shape.key // tile) if shape.query >= at.PAYS * block else 0


def in_rows(x: Tensor) -> Tensor:
    """Convert to float32 with rows that a matrix product can read; unchanged if possible."""
    fits = (x.stride(3) == 1 or x.shape[3] == 1) and x.stride(2) >= x.shape[3]
    if fits and x.dtype == torch.float32:
        return x
    return torch.empty(x.shape, dtype=torch.float32).copy_(x)


def norms(output: Tensor, w_o: Tensor | None) -> Tensor:
    """Compute the norm of each row's output (projected by a given matrix), in blocks of rows."""
    if w_o is None:
        return result_norm(output)
    found = output.new_empty(output.shape[:3])
    for head in range(output.shape[1]):
        for low in range(0, output.shape[2], 1024):
            rows = output[:, head : head + 1, low : low + 1024]
            found[:, head : head + 1, low : low + 1024] = result_norm(rows, w_o[head : head + 1])
    return found


def between_segments(mass: Tensor, query_labels: Tensor, n_query: int) -> Tensor:
    """Sum rows by their label, in float64."""
    labels = query_labels.expand(len(mass), -1)
    found = mass.new_zeros(*mass.shape[:2], n_query + 1, mass.shape[3], dtype=torch.float64)
    inside = torch.where((labels >= 0) & (labels < n_query), labels, n_query)
    for batch in range(len(mass)):
        found[batch].index_add_(1, inside[batch], mass[batch].double())
    return found[:, :, :n_query].to(mass.dtype)
