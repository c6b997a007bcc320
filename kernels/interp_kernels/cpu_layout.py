"""Inputs of the compiled pass: a record of numbers and a few arrays, each of one fixed type.

One fixed type each means a single compilation, cached between processes. All arrays are of one
prompt. An array that a call does not need is empty; a head axis along which nothing differs may
have size 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types

SOFTMAX, SIGMOID, RELU, SIGNED = range(4)
ACTIVATIONS = {"softmax": SOFTMAX, "sigmoid": SIGMOID, "relu": RELU, "signed": SIGNED}

# Columns of a row's statistics in `Work.rows`; masses, top weights and products follow.
LSE, ENTROPY, LARGEST, DISTANCE, MEAN, VARIANCE, HIGHEST = range(7)
N_STATISTICS = 7
# A row's float64 sums and further values, in `Work.sums`.
TOTAL, SIZE, PRODUCT, FAR, COUNT, AVERAGE, SPREAD, TOP, BEST, BEST_KEY, SIGN, CHANGE, SHARE = range(
    13
)
N_SUMS = 13

# Integers and scalars of one task: heads and queries from..to, and requested statistics.
NUMBERS = np.dtype(
    [
        *((name, np.int64) for name in ("sgemm", "pack", "compute")),  # addresses
        *((name, np.int64) for name in ("head", "head_end", "query", "query_end")),
        *((name, np.int64) for name in ("block", "tile", "offset", "causal", "window")),  # 0: none
        ("activation", np.int64),
        # Strides of the bias, in elements.
        *((name, np.int64) for name in ("bias_head", "bias_query", "bias_key", "relative_head")),
        ("bias_first", np.int64),  # the query of the first row of `Given.bias` or `Given.shown`
        *((name, np.int64) for name in ("target_query", "target_key")),  # first of `Given.targets`
        ("column_head", np.int64),  # the head of the first row of `Into.columns`
        # True if requested
        *((name, np.int64) for name in ("output", "moments", "distance", "columns")),
        *((name, np.int64) for name in ("n_mass", "k", "n_right", "n_held")),  # how many of each
        ("scale", np.float32),
        ("cap", np.float32),  # 0: none
        ("lowest", np.float32),  # a bias up to this value hides its key
    ]
)


# Remaining blocks of queries from which packing a tile of keys saves time: packing, and its new
# memory, cost as much as this many faster products save.
PAYS = 12

# Entries of `Work.kept`: the block of queries whose weights are kept for column sums, and the head
# of keys with the number of its packed tiles.
HEAD, QUERY, ROWS, LOW, HIGH, TILES, KV_HEAD, PACKED = range(8)
N_KEPT = 8


class Given(NamedTuple):
    """Inputs besides q, k and v (whose last axis is contiguous, with rows of that stride).

    `lines` run along the keys: n_right that multiply the weights, n_held that multiply their
    magnitude.
    """

    bias: np.ndarray  # flat
    shown: np.ndarray  # flat: a bool bias
    relative: np.ndarray  # flat: head, key - query + queries - 1
    ranges: np.ndarray  # query; first key, end
    seen: np.ndarray  # keys, then queries, that are not padding
    sinks: np.ndarray  # head
    lines: np.ndarray  # head, key, n
    left: np.ndarray  # head, n, query
    targets: np.ndarray  # predicate, query, key
    runs: np.ndarray  # run; first key, end, index among the masses
    first_run: np.ndarray  # query + 1: the first of its own runs
    own_runs: np.ndarray  # run of one query; first key, end, index among the masses
    offsets: np.ndarray  # tokens back to the requested key
    pools: np.ndarray  # side lengths of the squares of pooled maps


class Into(NamedTuple):
    """Results of the compiled pass."""

    output: np.ndarray  # head, query, d_v
    table: np.ndarray  # statistic, head, query
    keys: np.ndarray  # head, query: of the largest weight, then of the top k
    columns: np.ndarray  # head: received by each key, left products, squares of every pool


class Work(NamedTuple):
    """Workspace of one thread; rows are queries of the block."""

    scores: np.ndarray  # row, key
    spare: np.ndarray  # row, key of a tile
    sums: np.ndarray  # row, sum
    peaks: np.ndarray  # row: its peak; then, per tile, the peak that its weights are relative to
    left: np.ndarray  # n, row
    column: np.ndarray  # n + 1, key of a tile
    q: np.ndarray  # row, d: scaled
    factors: np.ndarray  # key tile, row: factor from a weight in `scores` to the normalised one
    rows: np.ndarray  # row, statistic
    packed: np.ndarray  # key tile, packed for the matrix product; may be fewer than all tiles
    kept: np.ndarray  # HEAD to PACKED; 0 tiles at first


def _array(dtype: types.Type, ndim: int, layout: str = "C") -> types.Array:
    return types.Array(dtype, ndim, layout)


_REAL, _DOUBLE, _INT, _BYTE = types.float32, types.float64, types.int64, types.uint8
_GIVEN = [
    *(_array(_REAL, 1), _array(_BYTE, 1), _array(_REAL, 1), _array(_INT, 2)),
    *(_array(_BYTE, 1), _array(_DOUBLE, 1)),
    *(_array(_REAL, 3), _array(_REAL, 3), _array(_BYTE, 3)),
    *(_array(_INT, 2), _array(_INT, 1), _array(types.int32, 2)),
    *(_array(_INT, 1), _array(_INT, 1)),
]
_INTO = [_array(_REAL, 3), _array(_REAL, 3), _array(_INT, 3), _array(_DOUBLE, 2)]
_WORK = [*(_array(_REAL, 2),) * 2, _array(_DOUBLE, 2), *(_array(_REAL, 2),) * 7, _array(_INT, 1)]


def signature(rare: bool, summed: bool) -> Any:
    """Return types of the inputs of the pass; a flag that is None leaves its code out."""
    return types.void(
        from_dtype(NUMBERS),
        types.boolean if rare else types.none,
        types.boolean if summed else types.none,
        *(_array(_REAL, 3, "A"),) * 3,  # q, k, v: head, position, d
        types.NamedTuple(_GIVEN, Given),
        types.NamedTuple(_INTO, Into),
        types.NamedTuple(_WORK, Work),
    )
