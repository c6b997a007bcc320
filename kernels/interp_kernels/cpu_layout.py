"""What the compiled pass is given: a record of numbers and a few arrays, of one fixed type each.

One type each means one compilation, kept between processes. All arrays are of one prompt. One that
a call does not need is empty; a head axis along which nothing differs may have size 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types

SOFTMAX, SIGMOID, RELU, SIGNED = range(4)
ACTIVATIONS = {"softmax": SOFTMAX, "sigmoid": SIGMOID, "relu": RELU, "signed": SIGNED}

# Where a row's statistics stand in `Work.rows`; then come masses, top weights, products.
LSE, ENTROPY, LARGEST, DISTANCE, MEAN, VARIANCE, HIGHEST = range(7)
N_STATISTICS = 7
# A row's sums in float64, and what else is known of it, in `Work.sums`.
TOTAL, SIZE, PRODUCT, FAR, COUNT, AVERAGE, SPREAD, TOP, BEST, BEST_KEY, SIGN, CHANGE, SHARE = range(
    13
)
N_SUMS = 13

# Whole numbers and scalars of one task: heads and queries from..to, and what is wanted.
NUMBERS = np.dtype(
    [
        *((name, np.int64) for name in ("sgemm", "pack", "compute")),  # addresses
        *((name, np.int64) for name in ("head", "head_end", "query", "query_end")),
        *((name, np.int64) for name in ("block", "tile", "offset", "causal", "window")),  # 0: none
        ("activation", np.int64),
        # Strides of the bias, in elements.
        *((name, np.int64) for name in ("bias_head", "bias_query", "bias_key")),
        ("target_query", np.int64),  # the query of the first row of `Given.targets`
        ("column_head", np.int64),  # the head of the first row of `Into.columns`
        *((name, np.int64) for name in ("output", "moments", "distance", "columns")),  # wanted?
        *((name, np.int64) for name in ("n_mass", "k", "n_right", "n_held")),  # how many of each
        ("n_targets", np.int64),  # of the masses, those of predicates; then runs, then offsets
        ("scale", np.float32),
        ("cap", np.float32),  # 0: none
        ("lowest", np.float32),  # a bias up to here hides its key
    ]
)


# Blocks of queries that must be left for a tile of keys to be packed: packing, and its new memory,
# take what a faster product saves so many times.
PAYS = 12

# What `Work.kept` tells: of the block of queries whose weights are kept for column sums; and of the
# head of keys, how many tiles of which are packed.
HEAD, QUERY, ROWS, LOW, HIGH, TILES, KV_HEAD, PACKED = range(8)
N_KEPT = 8


class Given(NamedTuple):
    """Inputs beside q, k and v (whose last axis is contiguous, and their rows apart by its size).

    `lines` run along the keys: n_right that multiply the weights, n_held that multiply their size.
    """

    bias: np.ndarray  # flat
    shown: np.ndarray  # flat: a bool bias
    seen: np.ndarray  # keys, then queries, that are no padding
    sinks: np.ndarray  # head
    lines: np.ndarray  # head, key, n
    left: np.ndarray  # head, n, query
    targets: np.ndarray  # predicate, query, key
    runs: np.ndarray  # run; first key, end, index among the masses
    offsets: np.ndarray  # tokens back to the key whose weight is wanted
    pools: np.ndarray  # sides of the squares of pooled maps


class Into(NamedTuple):
    """Results."""

    output: np.ndarray  # head, query, d_v
    table: np.ndarray  # statistic, head, query
    keys: np.ndarray  # head, query: of the largest weight, then of the top k
    columns: np.ndarray  # head: received by each key, left products, squares of every pool


class Work(NamedTuple):
    """Workspace of one thread; rows are queries of the block."""

    scores: np.ndarray  # row, key
    spare: np.ndarray  # row, key of a tile
    sums: np.ndarray  # row, sum
    peaks: np.ndarray  # row: its peak; then, per tile, the peak its weights are relative to
    left: np.ndarray  # n, row
    column: np.ndarray  # n + 1, key of a tile
    q: np.ndarray  # row, d: scaled
    factors: np.ndarray  # key tile, row: times a weight in `scores`, the normalised one
    rows: np.ndarray  # row, statistic
    packed: np.ndarray  # key tile, as the matrix product wants it; fewer tiles than there are
    kept: np.ndarray  # HEAD to PACKED; 0 tiles at first


def _array(dtype: types.Type, ndim: int, layout: str = "C") -> types.Array:
    return types.Array(dtype, ndim, layout)


_REAL, _DOUBLE, _INT, _BYTE = types.float32, types.float64, types.int64, types.uint8
_GIVEN = [
    *(_array(_REAL, 1), _array(_BYTE, 1), _array(_BYTE, 1), _array(_DOUBLE, 1)),
    *(_array(_REAL, 3), _array(_REAL, 3), _array(_BYTE, 3)),
    *(_array(_INT, 2), _array(_INT, 1), _array(_INT, 1)),
]
_INTO = [_array(_REAL, 3), _array(_REAL, 3), _array(_INT, 3), _array(_DOUBLE, 2)]
_WORK = [*(_array(_REAL, 2),) * 2, _array(_DOUBLE, 2), *(_array(_REAL, 2),) * 7, _array(_INT, 1)]


def signature(rare: bool) -> Any:
    """Types of what the pass takes; where its `rare` is None, the code that asks is left out."""
    return types.void(
        from_dtype(NUMBERS),
        types.boolean if rare else types.none,
        *(_array(_REAL, 3, "A"),) * 3,  # q, k, v: head, position, d
        types.NamedTuple(_GIVEN, Given),
        types.NamedTuple(_INTO, Into),
        types.NamedTuple(_WORK, Work),
    )
