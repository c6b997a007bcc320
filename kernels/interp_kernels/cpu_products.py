"""The two matrix products of a tile: queries by keys, and weights by values."""

from __future__ import annotations

from interp_kernels import cpu_layout as at
from interp_kernels.cpu_blas import (
    FIRST,
    PACKED,
    PLAIN,
    TRANSPOSED,
    sgemm,
    sgemm_compute,
    sgemm_pack,
)
from interp_kernels.cpu_compile import inner
from interp_kernels.cpu_layout import SIGNED
from interp_kernels.cpu_rows import address, multiply, real, soft_cap


@inner()
def packed_tile(plan, m, query, k, work, key, width):
    """Return the address of a packed tile of keys, once packing saves time; else 0.

    Tiles are packed in order, the first being those that most queries see.
    """
    number, kept = key // plan.tile, work.kept
    if m < plan.block or width < plan.tile or key % plan.tile or number >= work.packed.shape[0]:
        return 0
    into = address(work.packed[number])
    if number >= kept[at.PACKED]:
        if number > kept[at.PACKED] or plan.query_end - query < at.PAYS * plan.block:
            return 0
        first, apart = address(k[key:]), k.strides[0] // 4
        d = k.shape[1]
        sgemm_pack(plan.pack, FIRST, TRANSPOSED, width, m, d, real(1), first, apart, into)
        kept[at.PACKED] = number + 1
    return into


@inner()
def score_tile(plan, rare, m, query, k, work, key, width, base):
    """Compute scores of one tile, before masks; q is scaled already, as in the definition."""
    packed = packed_tile(plan, m, query, k, work, key, width)
    q, d, scores, stride = address(work.q), k.shape[1], work.scores[base:], work.scores.shape[1]
    into = address(scores)
    if packed:
        sgemm_compute(
            plan.compute, PACKED, PLAIN, width, m, d, packed, d, q, d, real(0), into, stride
        )
    else:
        keys, apart = address(k[key:]), k.strides[0] // 4
        sgemm(
            plan.sgemm,
            TRANSPOSED,
            PLAIN,
            width,
            m,
            d,
            real(1),
            keys,
            apart,
            q,
            d,
            real(0),
            into,
            stride,
        )
    for row in range(m * (plan.cap > 0)):
        soft_cap(scores[row, :width], plan.cap)


@inner()
def scaled(line, factor):
    """Multiply a line in place."""
    for c in range(line.size):
        line[c] *= factor


@inner()
def products(plan, rare, v, lines, output, rows, work, key, width, base, keep):
    """Add one tile's weights times values, and times other vectors along the keys."""
    m, stride = rows.shape[0], work.scores.shape[1]
    first = at.N_STATISTICS + plan.n_mass + plan.k
    if keep:
        for row in range(m):
            change = real(work.sums[row, at.CHANGE])
            if change != real(1):
                work.sums[row, at.CHANGE] = 1.0
                scaled(rows[row, first:], change)
                if plan.output:
                    scaled(output[row], change)
    weights, wide = address(work.scores[base:]), rows.shape[1]
    if plan.output:
        values, apart = address(v[key:]), v.strides[0] // 4
        into, d_v = address(output), v.shape[1]
        multiply(plan.sgemm, m, d_v, width, weights, stride, values, apart, keep, into, d_v)
    n = lines.shape[1]
    if n == 0:
        return
    along, into = address(lines[key:]), address(rows) + 4 * first
    signed = 0
    if rare is not None:
        signed = plan.n_held * (plan.activation == SIGNED)
        if signed:  # magnitudes of weights for those
            for row in range(m):
                for j in range(width):
                    work.spare[row, j] = abs(work.scores[base + row, j])
            sizes, apart, right = address(work.spare), work.spare.shape[1], 4 * (n - signed)
            beside, beyond = along + right, into + right
            multiply(plan.sgemm, m, signed, width, sizes, apart, beside, n, keep, beyond, wide)
    if n > signed:
        multiply(plan.sgemm, m, n - signed, width, weights, stride, along, n, keep, into, wide)
