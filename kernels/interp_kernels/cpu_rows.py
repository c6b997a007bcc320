"""Compiled arithmetic on one row of scores, or a few: weights in place, and their sums.

A hidden key's score is HIDDEN on input and its weight exactly 0 on output. Sums within a tile are
in as many float32 lanes as the processor has; sums over tiles belong to the caller, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from interp_kernels.cpu_blas import PLAIN, intrinsic, sgemm
from interp_kernels.cpu_compile import inner
from interp_kernels.cpu_layout import AVERAGE, COUNT, SPREAD, TOP

real = np.float32
HIDDEN = real(-1.7e38)  # finite, so that sums may be reordered; scores are at most half as large
SEEN = real(-1.2e38)

RAMP = np.arange(4096, dtype=np.float32)  # converting an index to float costs more than reading it

# Lanes may be summed in any order; single values are computed as written. No input is infinite.
EACH: Any = {"contract", "nsz", "nnan", "arcp"}
SUMS: Any = EACH | {"reassoc"}


@intrinsic
def in_wide_lanes(typing):
    """Vectorise the function in 512 bits if there are such registers; LLVM prefers 256."""

    def build(context, builder, _, given):
        # llvmlite's own `add` does not support attributes with values.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), build


@intrinsic
def larger(typing, x, y):
    """Compute max(x, y) without a branch: LLVM vectorises it but not max."""

    def build(context, builder, _, given):
        kind = ir.FloatType()
        call = ir.FunctionType(kind, [kind, kind])
        function = builder.module.declare_intrinsic("llvm.maxnum", [kind], call)
        return builder.call(function, given, fastmath=("nnan", "nsz", "reassoc"))

    return types.float32(types.float32, types.float32), build


# 2^r - 1 = r (P1 + r P2 + ...) for |r| up to half an octave, fitted for relative error (2e-9).
_P1, _P2, _P3, _P4, _P5, _P6 = (
    *(real(6.9314720286e-1), real(2.4022647914e-1), real(5.5503324708e-2)),
    *(real(9.6184373582e-3), real(1.3398874557e-3), real(1.5353362063e-4)),
)
_LOG2_E, _ONE = real(1.44269504), real(1)
_LEAST, _MOST = real(-87), real(88)  # beyond this, 2^n is not a normal number


@inner(fastmath=EACH)
def exp(x):
    """Compute e^x for x up to 88, to about an ulp of 1 (relative to 1, below it); 0 below e^-87."""
    octaves = np.rint(x * _LOG2_E)
    r = x * _LOG2_E - octaves
    y = (((((_P6 * r + _P5) * r + _P4) * r + _P3) * r + _P2) * r + _P1) * r + _ONE
    power = np.int32((np.int32(octaves) + np.int32(127)) << np.int32(23)).view(np.float32)
    return y * power if x >= _LEAST else real(0)


# Cephes' tanhf: odd polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel.
_T0, _T1, _T2, _T3, _T4 = (
    *(real(-5.70498872745e-3), real(2.06390887954e-2), real(-5.37397155531e-2)),
    *(real(1.33314422036e-1), real(-3.33332819422e-1)),
)


@inner(fastmath=EACH)
def tanh(x):
    """Compute the hyperbolic tangent, to about two ulps."""
    size = abs(x)
    z = x * x
    near = ((((_T0 * z + _T1) * z + _T2) * z + _T3) * z + _T4) * z * x + x
    far = _ONE - real(2) / (exp(real(2) * min(size, real(20))) + _ONE)
    return near if size < real(0.625) else (far if x > 0 else -far)


@inner()
def fill(s, value):
    """Set every entry to one value."""
    for j in range(s.size):
        s[j] = value


@intrinsic
def address(typing, x):
    """Return the address of an array as a signed number; numba converts mixed sums to floats."""

    def build(context, builder, signature, given):
        array = context.make_array(signature.args[0])(context, builder, given[0])
        return builder.ptrtoint(array.data, ir.IntType(64))

    return types.int64(x), build


@inner()
def multiply(address, m, n, k, a, a_row, b, b_row, keep, c, c_row):
    """Compute c = a b (+ c, if kept), row-major [m, k] by [k, n]."""
    beta = real(1) if keep else real(0)
    sgemm(address, PLAIN, PLAIN, n, m, k, real(1), b, b_row, a, a_row, beta, c, c_row)


@inner(fastmath=EACH)
def soft_cap(s, cap):
    """Cap scores smoothly to +-cap, in place."""
    for j in range(s.size):
        s[j] = cap * tanh(s[j] / cap)


@inner(fastmath={"contract"})
def add_bias(s, bias, step, lowest):
    """Add one row of a bias; -inf in it hides the key."""
    for j in range(s.size):
        b = bias[j] if step == 1 else bias[0]
        s[j] = s[j] + b if b > lowest else HIDDEN


@inner(fastmath={"contract"})
def add_line(s, line):
    """Add one number per key."""
    for j in range(s.size):
        s[j] += line[j]


@inner()
def hide(s, seen, step):
    """Hide keys whose byte is 0."""
    for j in range(s.size):
        if (seen[j] if step == 1 else seen[0]) == 0:
            s[j] = HIDDEN


@inner(fastmath=SUMS)
def highest(s):
    """Return the largest score."""
    in_wide_lanes()
    top = HIDDEN
    for j in range(s.size):
        top = larger(top, s[j])
    return top


@inner(fastmath=SUMS)
def largest_size(s):
    """Return the largest |score| of visible keys."""
    top = HIDDEN
    for j in range(s.size):
        top = larger(top, abs(s[j]) if s[j] > SEEN else HIDDEN)
    return top


@inner(fastmath=SUMS)
def soft_weights(s, peak):
    """Compute e^(score - peak) in place; return its sum, and its sum times the exponent."""
    in_wide_lanes()
    total, product = real(0), real(0)
    for j in range(s.size):
        x = s[j] - peak
        y = exp(x)
        s[j] = y
        total += y
        product += y * x
    return total, total, product


@inner(fastmath=SUMS)
def signed_weights(s, peak):
    """Compute e^(|score| - peak) with the score's sign; a score of 0 gets weight 0 but counts."""
    total, size, product = real(0), real(0), real(0)
    for j in range(s.size):
        x = (abs(s[j]) if s[j] > SEEN else HIDDEN) - peak
        y = exp(x)
        total += y
        y = y if s[j] != real(0) else real(0)
        s[j] = y if s[j] > real(0) else -y
        size += y
        product += y * x
    return total, size, product


@inner(fastmath=SUMS)
def lone_weights(s, sigmoid):
    """Compute sigmoid or ReLU of each score, in place; return their sum, and -sum w ln w."""
    size, entropy = real(0), real(0)
    for j in range(s.size):
        if sigmoid:
            y = _ONE / (_ONE + exp(-s[j])) if s[j] > -_MOST else real(0)
        else:
            y = larger(s[j], real(0))
        s[j] = y
        size += y
    for j in range(s.size):
        if s[j] > real(0):
            entropy -= s[j] * np.log(s[j])
    return real(0), size, entropy


@inner(fastmath=SUMS)
def distance_sum(s, first):
    """Compute sum |w| |query - key|, with the first key `first` tokens before the query."""
    in_wide_lanes()
    total, start = real(0), real(first)
    for j in range(s.size):
        total += abs(s[j]) * abs(start - RAMP[j])
    return total


@inner(fastmath=SUMS)
def target_sum(s, target):
    """Compute sum |w| where the byte is not 0."""
    total = real(0)
    for j in range(s.size):
        total += abs(s[j]) * real(target[j])
    return total


@inner(fastmath=SUMS)
def add_moments(s, sums):
    """Merge a tile's count, mean, spread and maximum into the row's (Chan et al. 1979)."""
    count, total, top = 0, real(0), HIDDEN
    for j in range(s.size):
        seen = s[j] > SEEN
        count += 1 if seen else 0
        total += s[j] if seen else real(0)
        top = larger(top, s[j])
    if count == 0:
        return
    mean = real(total / real(count))
    apart, spread = real(0), real(0)
    for j in range(s.size):
        d = s[j] - mean if s[j] > SEEN else real(0)
        apart += d
        spread += d * d
    # The sum of the differences corrects the rounding of the mean.
    exact, before = mean + apart / np.float64(count), sums[COUNT]
    step, both = exact - sums[AVERAGE], before + count
    sums[SPREAD] += spread - apart * np.float64(apart) / count
    sums[SPREAD] += step * step * before * count / both
    sums[AVERAGE] += step * count / both
    sums[COUNT] = both
    sums[TOP] = max(sums[TOP], top) if before else np.float64(top)


@inner()
def add_top(s, first_key, signed, top, top_key):
    """Merge scores into a row's k best, in descending order; most chunks contain none."""
    k = top.size
    for low in range(0, s.size, 64):
        part = s[low : low + 64]
        if (largest_size(part) if signed else highest(part)) <= top[k - 1]:
            continue
        for j in range(part.size):
            size = abs(part[j]) if signed and part[j] > SEEN else part[j]
            if size <= top[k - 1]:
                continue
            at = k - 1
            while at > 0 and top[at - 1] < size:
                top[at], top_key[at] = top[at - 1], top_key[at - 1]
                at -= 1
            found = first_key + low + j
            # The sign of a score is stored in its key: ~key if it is negative.
            top[at], top_key[at] = size, ~found if signed and part[j] < 0 else found


@inner(fastmath=SUMS)
def sum_of(s):
    """Return the sum of magnitudes."""
    total = real(0)
    for j in range(s.size):
        total += abs(s[j])
    return total


@inner()
def where_first(s, top):
    """Return the index of the first score equal to the top, which exists."""
    low = 0
    while highest(s[low : low + 64]) != top:
        low += 64
    while s[low] != top:
        low += 1
    return low


@inner()
def where_largest(s, top):
    """Return the index of the first visible |score| equal to the top, which exists."""
    low = 0
    while s[low] <= SEEN or abs(s[low]) != top:
        low += 1
    return low


@inner(fastmath=SUMS)
def add_rows(column, scores, coefficient):
    """Add to the column the rows' |w| times their coefficients; four rows at a time."""
    in_wide_lanes()
    n, row = column.size, 0
    while row < coefficient.size:
        p, a = coefficient[row], scores[row, :n]
        if row + 4 <= coefficient.size:
            b, c, d = scores[row + 1, :n], scores[row + 2, :n], scores[row + 3, :n]
            q, u, w = coefficient[row + 1], coefficient[row + 2], coefficient[row + 3]
            for j in range(n):
                column[j] += p * abs(a[j]) + q * abs(b[j]) + (u * abs(c[j]) + w * abs(d[j]))
            row += 4
        else:
            for j in range(n):
                column[j] += p * abs(a[j])
            row += 1


@inner()
def reach(plan, ranges, n_keys, query, last):
    """Return the range of keys that causality, window and ranges leave to queries from..to."""
    low, high = 0, n_keys
    if plan.causal:
        high = min(high, max(0, plan.offset + last))
    if plan.window:
        low = max(0, plan.offset + query - plan.window + 1)
    if ranges.shape[0] and query < last:
        first, end = n_keys, 0
        for row in range(query, last):
            if ranges[row, 0] < ranges[row, 1]:
                first, end = min(first, ranges[row, 0]), max(end, ranges[row, 1])
        low, high = max(low, first), min(high, end)
    return min(low, high), high
