"""The compiled pass: a block of queries against its keys, tile by tile, row by row.

Scores of a tile come from one matrix product and are turned into weights in place, relative to the
largest score of the row so far; earlier sums are rescaled when that grows. For column sums the
weights of a block are kept, since only its last tile determines the normalisers: a second product
would cost more than the memory. A tile of them is added just before the next block overwrites it,
so that it enters the core's cache once for both.

Two flags are None or True by type. Where `rare` is None, numba leaves out, before it analyses them,
the branches for less common features (top-k keys, moments, non-softmax activations); where `summed`
is None, those for column sums.
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from interp_kernels import cpu_layout as at
from interp_kernels.cpu_ahead import wait_for_it
from interp_kernels.cpu_compile import built, inner
from interp_kernels.cpu_layout import RELU, SIGMOID, SIGNED
from interp_kernels.cpu_products import products, scaled, score_tile
from interp_kernels.cpu_rows import (
    HIDDEN,
    SEEN,
    add_bias,
    add_line,
    add_moments,
    add_rows,
    add_top,
    address,
    distance_sum,
    exp,
    fill,
    hide,
    highest,
    largest_size,
    lone_weights,
    multiply,
    reach,
    real,
    signed_weights,
    soft_weights,
    sum_of,
    target_sum,
    where_first,
    where_largest,
)


@inner()
def mask_row(plan, bias, shown, relative, seen, s, head, query, key, n_keys, n_queries):
    """Apply biases and padding to one row's tile, in place."""
    if relative.size:
        add_line(s, relative[head * plan.relative_head + key - query + n_queries - 1 :])
    row = query - plan.bias_first
    start = head * plan.bias_head + row * plan.bias_query + key * plan.bias_key
    if bias.size:
        add_bias(s, bias[start:], plan.bias_key, plan.lowest)
    if shown.size:
        hide(s, shown[start:], plan.bias_key)
    if seen.size:
        hide(s, seen[key:], seen.strides[0])
        if seen[n_keys + query] == 0:
            fill(s, HIDDEN)


@inner()
def find_best(plan, rare, s, rows, keys, sums, key):
    """Find the largest score of one row's tile; store it unless an earlier tile has it."""
    if rare is None:
        top = highest(s)
        if top > SEEN and (sums[at.BEST_KEY] < 0 or top > sums[at.BEST]):
            sums[at.BEST], sums[at.BEST_KEY] = top, key + where_first(s, top)
        return top
    signed = plan.activation == SIGNED
    top = largest_size(s) if signed else highest(s)
    if top <= SEEN:
        return top
    if plan.moments:
        add_moments(s, sums)
    if plan.k:
        first = at.N_STATISTICS + plan.n_mass
        add_top(s, key, signed, rows[first : first + plan.k], keys[1:])
    if sums[at.BEST_KEY] < 0 or top > sums[at.BEST]:
        index = where_largest(s, top) if signed else where_first(s, top)
        sums[at.BEST], sums[at.BEST_KEY] = top, key + index
        sums[at.SIGN] = np.sign(s[index]) if signed else 1.0
    return top


@inner()
def raise_peak(plan, rows, sums, peaks, top):
    """Rescale sums relative to the row's peak when the peak grows."""
    if top > peaks[0]:
        if peaks[0] > SEEN:
            change = np.float64(exp(peaks[0] - top))
            # From sum (x - old) e^(x - old) to sum (x - new) e^(x - new).
            sums[at.PRODUCT] += sums[at.SIZE] * (np.float64(peaks[0]) - np.float64(top))
            for c in (at.TOTAL, at.SIZE, at.PRODUCT, at.FAR):
                sums[c] *= change
            for c in range(at.N_STATISTICS, at.N_STATISTICS + plan.n_mass):
                rows[c] *= real(change)
            sums[at.CHANGE] = change
        peaks[0] = top


@inner()
def weigh_row(plan, rare, s, rows, keys, sums, peaks, distance, key, number):
    """Turn one row's tile of scores into weights; return their total magnitude, -1 if none."""
    top = find_best(plan, rare, s, rows, keys, sums, key)
    if top <= SEEN:
        fill(s, real(0))
        return real(-1)
    if rare is None:
        raise_peak(plan, rows, sums, peaks, top)
        total, size, product = soft_weights(s, peaks[0])
    elif lone(plan):
        total, size, product = lone_weights(s, plan.activation == SIGMOID)
        peaks[0] = real(0)
    else:
        raise_peak(plan, rows, sums, peaks, top)
        if plan.activation == SIGNED:
            total, size, product = signed_weights(s, peaks[0])
        else:
            total, size, product = soft_weights(s, peaks[0])
    peaks[1 + number] = peaks[0]
    sums[at.TOTAL] += total
    sums[at.SIZE] += size
    sums[at.PRODUCT] += product
    if plan.distance:
        sums[at.FAR] += distance_sum(s, distance)
    return size


@inner()
def lone(plan):
    """Return True if each weight depends only on its own score: sigmoid or ReLU."""
    return SIGMOID <= plan.activation <= RELU


@inner()
def add_runs(s, size, key, masses, runs):
    """Add the weights in runs of keys; long runs contain whole tiles, whose sum is `size`."""
    for r in range(runs.shape[0]):
        first, end = max(np.int64(runs[r, 0]) - key, 0), min(np.int64(runs[r, 1]) - key, s.size)
        if end - first == s.size:
            masses[runs[r, 2]] += size
        elif first < end:
            masses[runs[r, 2]] += sum_of(s[first:end])


@inner()
def add_masses(s, size, key, place, masses, targets, given, query):
    """Add the weights where predicates hold, in runs of keys, and at fixed distances."""
    runs, offsets = given.runs, given.offsets
    for p in range(targets.shape[0]):
        masses[p] += target_sum(s, targets[p])
    add_runs(s, size, key, masses, runs)
    if given.first_run.size:
        own = given.own_runs[given.first_run[query] : given.first_run[query + 1]]
        add_runs(s, size, key, masses, own)
    for c in range(offsets.size):
        j = place - offsets[c] - key
        if 0 <= j < s.size:
            masses[masses.size - offsets.size + c] += s[j]


@inner()
def weight_of(plan, score, sign, peak, share):
    """Return the weight of one score, given its row's peak and normaliser."""
    if plan.activation == SIGMOID:
        return 1 / (1 + np.exp(-score))
    if plan.activation == RELU:
        return max(score, 0.0)
    return sign * np.exp(score - peak) * share


@inner()
def finish_top(plan, rows, keys, peak, share):
    """Compute the weights of a row's k best scores."""
    for c in range(plan.k):
        score, key, weight, sign = rows[c], keys[c], 0.0, 1.0
        if key < 0:  # a negative score, see `add_top`
            key, sign = ~key, -1.0
        if share > 0 and score > SEEN and not (plan.activation == SIGNED and score == 0):
            weight = weight_of(plan, np.float64(score), sign, peak, share)
        rows[c] = weight
        keys[c] = key if rows[c] != 0 else -1


@inner()
def finish_row(plan, rare, sinks, head, output, rows, keys, sums, peak):
    """Normalise one row and write its statistics."""
    share, log_total, lse = 1.0, 0.0, -np.inf
    if sums[at.BEST_KEY] < 0:
        share = 0.0
        if sinks.size:
            lse = sinks[head]
    elif rare is None or not lone(plan):
        log_total = np.log(sums[at.TOTAL])
        if sinks.size:  # in logarithms, since a sink may be far above every score
            sink = sinks[head] - peak
            apart = abs(sink - log_total)
            log_total = max(sink, log_total) + np.log1p(np.exp(-apart))
        share, lse = np.exp(-log_total), peak + log_total
        sums[at.PRODUCT] = share * (sums[at.SIZE] * log_total - sums[at.PRODUCT])
    sums[at.SHARE] = share
    rows[at.LSE], rows[at.ENTROPY] = lse, sums[at.PRODUCT]
    first = at.N_STATISTICS + plan.n_mass
    if rare is None:
        largest = share * np.exp(sums[at.BEST] - peak)
    else:
        largest = weight_of(plan, sums[at.BEST], sums[at.SIGN], peak, share)
        finish_top(plan, rows[first : first + plan.k], keys[1:], peak, share)
        rows[at.MEAN], rows[at.HIGHEST] = sums[at.AVERAGE], -np.inf
        if sums[at.COUNT] > 0:
            rows[at.VARIANCE], rows[at.HIGHEST] = sums[at.SPREAD] / sums[at.COUNT], sums[at.TOP]
    rows[at.LARGEST] = largest if share > 0 else 0.0
    keys[0] = np.int64(sums[at.BEST_KEY]) if rows[at.LARGEST] != 0 else -1
    rows[at.DISTANCE] = share * sums[at.FAR]
    scaled(rows[at.N_STATISTICS : first], real(share))
    scaled(rows[first + plan.k :], real(share))
    if plan.output:
        scaled(output, real(share))


@inner()
def start_rows(plan, q, output, rows, scaled_q, sums, peaks):
    """Scale the queries and reset the sums."""
    for row in range(rows.shape[0]):
        for c in range(q.shape[1]):
            scaled_q[row, c] = plan.scale * q[row, c]
        fill(sums[row], 0.0)
        sums[row, at.CHANGE], sums[row, at.SIGN], sums[row, at.BEST_KEY] = 1.0, 1.0, -1.0
        fill(peaks[row], HIDDEN)
        fill(rows[row], real(0))
        for c in range(plan.k):
            rows[row, at.N_STATISTICS + plan.n_mass + c] = HIDDEN
        if plan.output:
            fill(output[row], real(0))


@inner()
def set_factors(work, m, tiles):
    """Set factors that normalise the weights of a block, each relative to an earlier peak."""
    for number in range(tiles):
        for row in range(m):
            change = exp(work.peaks[row, 1 + number] - work.peaks[row, 0])
            work.factors[number, row] = change * real(work.sums[row, at.SHARE])


@inner()
def columns(plan, left, pools, received, work, n_queries, n_keys, number):
    """Add one tile's weights, whose normalisers are now known, to sums over queries."""
    kept = work.kept
    head, query, m = kept[at.HEAD], kept[at.QUERY], kept[at.ROWS]
    key = kept[at.LOW] + number * plan.tile
    width, base = min(plan.tile, kept[at.HIGH] - key), number * plan.block
    left, into = left[head % left.shape[0]], received[head - plan.column_head]
    n, factor = left.shape[0], work.factors[number]
    if n:
        for c in range(n):
            for row in range(m):
                work.left[c, row] = left[c, query + row] * factor[row]
        weights, stride = address(work.scores[base:]), work.scores.shape[1]
        vectors, apart = address(work.left), work.left.shape[1]
        found, tile, keep = address(work.column[1:]), work.column.shape[1], n < 0
        multiply(plan.sgemm, n, width, m, vectors, apart, weights, stride, keep, found, tile)
        for c in range(n):
            for j in range(width):
                into[(1 + c) * n_keys + key + j] += work.column[1 + c, j]
    row, total = 0, work.column[0, :width]
    while row < m:
        end = m  # rows up to here are in the same squares of every pool
        for p in pools:
            end = min(end, (query + row) // p * p + p - query)
        fill(total, real(0))
        add_rows(total, work.scores[base + row : base + end], factor[row:end])
        for j in range(width):
            into[key + j] += total[j]
        first = (1 + n) * n_keys
        for p in pools:
            across = -(-n_keys // p)
            start, x = first + (query + row) // p * across, key
            while x < key + width:
                stop = min(x // p * p + p, key + width)
                into[start + x // p] += sum_of(total[x - key : stop - key])
                x = stop
            first += across * -(-n_queries // p)
        row = end


@inner(inline="always")  # not inlined into `attend`, which would take as long to compile again
def attend_block(plan, rare, summed, q, k, v, given, into, work, head, query):
    """Process one head's block of queries."""
    last = min(plan.query_end, query + plan.block)
    n_queries, n_keys, m = q.shape[1], k.shape[1], last - query
    kv_head = head // (q.shape[0] // k.shape[0])
    q, k, v = q[head, query:last], k[kv_head], v[kv_head]
    lines, n_lines = given.lines[head % given.lines.shape[0]], given.lines.shape[2]
    rows, keys = work.rows[:m], into.keys[head, query:last]
    output = into.output[head % into.output.shape[0], query:last]
    masked = given.bias.size + given.shown.size + given.relative.size + given.seen.size > 0
    low, high = reach(plan, given.ranges, n_keys, query, last)
    tiles = -(-(high - low) // plan.tile) if m else 0
    start_rows(plan, q, output, rows, work.q, work.sums, work.peaks)
    kept = work.kept
    if kept[at.KV_HEAD] != kv_head:
        kept[at.KV_HEAD], kept[at.PACKED] = kv_head, 0
    for number in range(max(tiles, kept[at.TILES])):
        if summed is not None and number < kept[at.TILES]:
            columns(plan, given.left, given.pools, into.columns, work, n_queries, n_keys, number)
        if number >= tiles:
            continue
        key = low + number * plan.tile
        width, base = min(plan.tile, high - key), number * plan.block * plan.columns
        score_tile(plan, rare, m, query, k, work, key, width, base)
        for row in range(m):
            s = work.scores[base + row, :width]
            first, end = reach(plan, given.ranges, n_keys, query + row, query + row + 1)
            first = min(max(first - key, 0), width)
            end = max(min(end - key, width), first)
            fill(s[:first], real(0))
            fill(s[end:], real(0))
            s, first = s[first:end], key + first
            if masked and s.size:
                mask = (given.bias, given.shown, given.relative, given.seen)
                mask_row(plan, *mask, s, head, query + row, first, n_keys, n_queries)
            line, sums, peaks = rows[row], work.sums[row], work.peaks[row]
            place = plan.offset + query + row
            apart = place - first
            size = weigh_row(plan, rare, s, line, keys[row], sums, peaks, apart, first, number)
            if size < 0:
                continue
            target = given.targets[:, query + row - plan.target_query, first - plan.target_key :]
            masses = line[at.N_STATISTICS : at.N_STATISTICS + plan.n_mass]
            add_masses(s, size, first, place, masses, target, given, query + row)
        if plan.output or n_lines:
            products(plan, rare, v, lines, output, rows, work, key, width, base, number > 0)
    for row in range(m):
        sums, peak = work.sums[row], np.float64(work.peaks[row, 0])
        finish_row(plan, rare, given.sinks, head, output[row], rows[row], keys[row], sums, peak)
    for c in range(rows.shape[1]):
        for row in range(m):
            into.table[c, head, query + row] = rows[row, c]
    if summed is not None:
        kept[at.HEAD], kept[at.QUERY], kept[at.ROWS] = head, query, m
        kept[at.LOW], kept[at.HIGH], kept[at.TILES] = low, high, tiles
        set_factors(work, m, tiles)


def compile_pass(version: int, rare: bool, summed: bool) -> Any:
    """Return the whole pass of one task, compiled or read from numba's cache."""

    def attend(plan, rare, summed, q, k, v, given, into, work):
        work.kept[at.PACKED] = 0  # the previous task may have been of another prompt
        blocks = -(-(plan.query_end - plan.query) // plan.block)
        steps = (plan.head_end - plan.head) * blocks
        for step in range(steps + 1):
            head, query = plan.head + step // blocks, plan.query + step % blocks * plan.block
            if step == steps:  # an empty block of queries, which flushes the kept weights
                head, query = plan.head, plan.query_end
            attend_block(plan, rare, summed, q, k, v, given, into, work, head, query)

    # The name of the cache's files. numba detects changes in one source file only, and cannot read
    # an index with types that no longer exist.
    attend.__qualname__ = f"attend_{version:08x}{'_rare' * rare}{'_sums' * summed}"
    return built(attend, at.signature(rare, summed), nogil=True, error_model="numpy", _nrt=False)


@cache
def attend(rare: bool, summed: bool) -> Any:
    """Return the compiled pass.

    Args:
        rare: with the code of rarely used features.
        summed: with the code of sums over queries; without both it compiles in 5 s of processor
            time, and each of them adds a fifth.
    """
    wait_for_it()
    sources = sorted(Path(__file__).parent.glob("cpu_*.py"))
    return compile_pass(zlib.crc32(b"".join(path.read_bytes() for path in sources)), rare, summed)
