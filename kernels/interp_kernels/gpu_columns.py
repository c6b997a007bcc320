"""Triton kernels of the second pass, where the log-sum-exp is known: exp(score - lse).

Sums over queries (a program owns a block of keys), squares of the pooled map (a program owns whole
squares, so no atomic addition is needed and results are deterministic), and masses on predicates,
whose truth values are bits of a tile.
"""

# The bodies of kernels are Triton, typed by its compiler:
# pyright: reportCallIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from interp_kernels.gpu_forward import arguments, launch, load_tile, score_tile, weight_tile
from interp_kernels.gpu_tiles import EXTRA, padded, tiles_for

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.problem import Attention


@triton.jit
def columns_kernel(
    q,
    k,
    bias,
    key_padding,
    query_padding,
    lse,
    vectors,
    received,
    product,
    q_b,
    q_h,
    q_n,
    q_d,
    k_b,
    k_h,
    k_n,
    k_d,
    x_b,
    x_h,
    x_m,
    x_n,
    bias_b,
    bias_h,
    bias_q,
    bias_k,
    heads,
    group,
    n_query,
    n_key,
    d,
    n,
    scale,
    cap,
    offset,
    window,
    hidden_below,
    D: tl.constexpr,
    NV: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    ACTIVATION: tl.constexpr,
    CAPPED: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    BIAS: tl.constexpr,
    KEY_PADDING: tl.constexpr,
    QUERY_PADDING: tl.constexpr,
    RECEIVED: tl.constexpr,
    PRODUCT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute received attention and left products of one block of keys of one head."""
    block = tl.program_id(0)  # in order: with causal masking the first keys have the most queries
    head = tl.program_id(1)
    b = (head // heads).to(tl.int64)
    h = (head % heads).to(tl.int64)
    first = block * BN
    j = first + tl.arange(0, BN)
    across = tl.arange(0, D)
    which = tl.program_id(2) * NV + tl.arange(0, NV)
    q += b * q_b + h * q_h
    bias += b * bias_b + h * bias_h
    vectors += b * x_b + h * x_h
    key_padding += b * n_key
    query_padding += b * n_query
    keys = load_tile(k + b * k_b + (h // group) * k_h, j, across, n_key, d, k_n, k_d)
    total = tl.zeros([BN], tl.float32)
    lost = tl.zeros([BN], tl.float32)  # compensation for rounding of the total (Kahan)
    acc = tl.zeros([NV, BN], tl.float32)

    low = 0
    high = n_query
    if CAUSAL:
        low = tl.maximum(0, first - offset) // BM * BM
    if WINDOW:
        high = tl.minimum(n_query, tl.maximum(0, first + BN - 1 + window - offset))
    for start in range(low, high, BM):
        i = start + tl.arange(0, BM)
        queries = load_tile(q, i, across, n_query, d, q_n, q_d)
        score, seen = score_tile(
            queries,
            keys,
            i,
            j,
            n_query,
            n_key,
            scale,
            cap,
            offset,
            window,
            bias,
            bias_q,
            bias_k,
            hidden_below,
            key_padding,
            query_padding,
            CAPPED,
            CAUSAL,
            WINDOW,
            BIAS,
            KEY_PADDING,
            QUERY_PADDING,
            PRECISION,
        )
        row = tl.load(lse + head.to(tl.int64) * n_query + i, mask=i < n_query, other=0.0)
        weight, size = weight_tile(score, seen, row, ACTIVATION)
        if RECEIVED:
            more = tl.sum(size, 0) - lost
            new = total + more
            lost = (new - total) - more
            total = new
        if PRODUCT:
            x = load_tile(vectors, which, i, n, n_query, x_m, x_n)
            acc += tl.dot(x, weight, input_precision=PRECISION)

    inside = j < n_key
    if RECEIVED:
        tl.store(received + head.to(tl.int64) * n_key + j, total, mask=inside)
    if PRODUCT:
        where = (head.to(tl.int64) * n + which)[:, None] * n_key + j[None, :]
        tl.store(product + where, acc, mask=(which < n)[:, None] & inside[None, :])


@triton.jit
def pooled_kernel(
    q,
    k,
    bias,
    key_padding,
    query_padding,
    lse,
    out,
    q_b,
    q_h,
    q_n,
    q_d,
    k_b,
    k_h,
    k_n,
    k_d,
    bias_b,
    bias_h,
    bias_q,
    bias_k,
    heads,
    group,
    n_query,
    n_key,
    d,
    scale,
    cap,
    offset,
    window,
    hidden_below,
    pool,
    tall,
    wide,
    out_rows,
    out_columns,
    blocks_across,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    ACTIVATION: tl.constexpr,
    CAPPED: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    BIAS: tl.constexpr,
    KEY_PADDING: tl.constexpr,
    QUERY_PADDING: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Sum `tall` x `wide` whole squares of `pool` x `pool` weights, tile by tile."""
    block = tl.program_id(0)
    head = tl.program_id(1)
    b = (head // heads).to(tl.int64)
    h = (head % heads).to(tl.int64)
    top = (block // blocks_across) * tall  # in squares
    left = (block % blocks_across) * wide
    bottom = tl.minimum(n_query, (top + tall) * pool)  # in tokens
    right = tl.minimum(n_key, (left + wide) * pool)
    across = tl.arange(0, D)
    q += b * q_b + h * q_h
    k += b * k_b + (h // group) * k_h
    bias += b * bias_b + h * bias_h
    key_padding += b * n_key
    query_padding += b * n_query
    # A tile contains either several squares along each axis or a part of one: there are at most
    # BM x BN squares, and their sums are products with membership matrices.
    rows_of = tl.arange(0, BM)
    columns_of = tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(top * pool, bottom, BM):
        i = start + tl.arange(0, BM)
        low = left * pool
        high = right
        if CAUSAL:
            high = tl.minimum(high, tl.maximum(low, start + BM + offset))
        if WINDOW:
            skipped = tl.maximum(0, start + offset - window + 1 - low)
            low += skipped // BN * BN
        queries = load_tile(q, i, across, bottom, d, q_n, q_d)
        row = tl.load(lse + head.to(tl.int64) * n_query + i, mask=i < bottom, other=0.0)
        belongs_down = (i[None, :] // pool - top == rows_of[:, None]).to(tl.float32)
        for begin in range(low, high, BN):
            j = begin + tl.arange(0, BN)
            keys = load_tile(k, j, across, right, d, k_n, k_d)
            score, seen = score_tile(
                queries,
                keys,
                i,
                j,
                n_query,
                n_key,
                scale,
                cap,
                offset,
                window,
                bias,
                bias_q,
                bias_k,
                hidden_below,
                key_padding,
                query_padding,
                CAPPED,
                CAUSAL,
                WINDOW,
                BIAS,
                KEY_PADDING,
                QUERY_PADDING,
                PRECISION,
            )
            seen = seen & (i < bottom)[:, None] & (j < right)[None, :]
            _, size = weight_tile(score, seen, row, ACTIVATION)
            belongs_across = (j[:, None] // pool - left == columns_of[None, :]).to(tl.float32)
            sums = tl.dot(belongs_down, size, input_precision=PRECISION)
            acc += tl.dot(sums, belongs_across, input_precision=PRECISION)
    at_row = top + rows_of
    at_column = left + columns_of
    held = ((rows_of < tall) & (at_row < out_rows))[:, None]
    held = held & ((columns_of < wide) & (at_column < out_columns))[None, :]
    where = (head.to(tl.int64) * out_rows + at_row)[:, None] * out_columns + at_column[None, :]
    tl.store(out + where, acc, mask=held)


@triton.jit
def masses_kernel(
    q,
    k,
    bias,
    key_padding,
    query_padding,
    lse,
    bits,
    out,
    q_b,
    q_h,
    q_n,
    q_d,
    k_b,
    k_h,
    k_n,
    k_d,
    bias_b,
    bias_h,
    bias_q,
    bias_k,
    bits_b,
    bits_q,
    bits_k,
    first_query,
    end_query,
    first_key,
    end_key,
    heads,
    group,
    n_query,
    n_key,
    d,
    scale,
    cap,
    offset,
    window,
    hidden_below,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    N: tl.constexpr,
    ACTIVATION: tl.constexpr,
    CAPPED: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    BIAS: tl.constexpr,
    KEY_PADDING: tl.constexpr,
    QUERY_PADDING: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute masses of a stripe of queries on up to 8 predicates, one per bit."""
    head = tl.program_id(1)
    b = (head // heads).to(tl.int64)
    h = (head % heads).to(tl.int64)
    first = first_query + tl.program_id(0) * BM
    i = first + tl.arange(0, BM)
    across = tl.arange(0, D)
    k += b * k_b + (h // group) * k_h
    bias += b * bias_b + h * bias_h
    bits += b * bits_b
    key_padding += b * n_key
    query_padding += b * n_query
    queries = load_tile(q + b * q_b + h * q_h, i, across, end_query, d, q_n, q_d)
    row = tl.load(lse + head.to(tl.int64) * n_query + i, mask=i < end_query, other=0.0)
    which = tl.arange(0, 8)
    acc = tl.zeros([BM, 8], tl.float32)
    low = first_key
    high = end_key
    if CAUSAL:
        high = tl.minimum(high, tl.maximum(first_key, offset + first + BM))
    if WINDOW:
        low = tl.maximum(first_key, offset + first - window + 1)
    for start in range(low, high, BN):
        j = start + tl.arange(0, BN)
        keys = load_tile(k, j, across, end_key, d, k_n, k_d)
        score, seen = score_tile(
            queries,
            keys,
            i,
            j,
            n_query,
            n_key,
            scale,
            cap,
            offset,
            window,
            bias,
            bias_q,
            bias_k,
            hidden_below,
            key_padding,
            query_padding,
            CAPPED,
            CAUSAL,
            WINDOW,
            BIAS,
            KEY_PADDING,
            QUERY_PADDING,
            PRECISION,
        )
        seen = seen & (i < end_query)[:, None] & (j < end_key)[None, :]
        _, size = weight_tile(score, seen, row, ACTIVATION)
        where = (i - first_query).to(tl.int64)[:, None] * bits_q + (j - first_key)[None, :] * bits_k
        held = tl.load(bits + where, mask=seen, other=0).to(tl.int32)
        for t in tl.static_range(N):
            mass = tl.sum(tl.where((held >> t) & 1 != 0, size, 0.0), 1)
            acc += tl.where(which[None, :] == t, mass[:, None], 0.0)
    where = (head.to(tl.int64) * n_query + i)[:, None] * N + which[None, :]
    tl.store(out + where, acc, mask=(i < end_query)[:, None] & (which < N)[None, :])


def columns(
    attention: Attention,
    lse: Tensor,
    *,
    received: bool = False,
    vectors: Tensor | None = None,
    block: int | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """Compute received attention [batch, head, key] and `vectors @ P` [batch, head, n, key]."""
    at, none = attention.shape, attention.q
    heads = (at.batch, at.head)
    total = torch.empty(*heads, at.key, device=none.device) if received else None
    product, n, strides = None, 1, (0, 0, 0, 0)
    if vectors is not None:
        n, strides = vectors.shape[2], vectors.expand(*heads, -1, -1).stride()
        product = torch.empty(*heads, n, at.key, device=none.device)
    width = min(padded(n), EXTRA)
    tiles = tiles_for(max(padded(at.d), width), none.element_size(), block)
    tiles = tiles._replace(queries=min(tiles.queries, 64))
    grid = (triton.cdiv(at.key, tiles.keys), at.batch * at.head, triton.cdiv(n, width))
    launch(
        columns_kernel,
        grid,
        **arguments(attention, tiles),
        lse=lse,
        n=n,
        NV=width,
        vectors=none if vectors is None else vectors,
        received=none if total is None else total,
        product=none if product is None else product,
        **dict(zip(["x_b", "x_h", "x_m", "x_n"], strides, strict=True)),
        RECEIVED=received,
        PRODUCT=vectors is not None,
    )
    return total, product


def pooled(attention: Attention, lse: Tensor, pool: int, block: int | None = None) -> Tensor:
    """Compute the pooled map [batch, head, query blocks, key blocks]."""
    at = attention.shape
    down, over = triton.cdiv(at.query, pool), triton.cdiv(at.key, pool)
    out = torch.empty(at.batch, at.head, down, over, device=attention.q.device)
    tiles = tiles_for(padded(at.d), 4, block)  # the sums are float32 products
    tall, wide = max(1, tiles.queries // pool), max(1, tiles.keys // pool)
    blocks_across = triton.cdiv(over, wide)
    launch(
        pooled_kernel,
        (triton.cdiv(down, tall) * blocks_across, at.batch * at.head),
        **arguments(attention, tiles),
        lse=lse,
        out=out,
        pool=pool,
        tall=tall,
        wide=wide,
        out_rows=down,
        out_columns=over,
        blocks_across=blocks_across,
    )
    return out


def masses(
    attention: Attention,
    lse: Tensor,
    bits: Tensor,
    out: Tensor,
    queries: slice,
    keys: slice,
    block: int | None = None,
) -> None:
    """Write the masses of one stripe into `out` [batch, head, query, up to 8].

    Args:
        attention: the attention call.
        lse: the log-sum-exp of each row.
        bits: uint8 [#batch, stripe of queries, keys]; bit t is the truth of predicate t.
        out: the results.
        queries: range of queries of the stripe.
        keys: range of keys.
        block: queries at a time.
    """
    at = attention.shape
    tiles = tiles_for(padded(at.d), attention.q.element_size(), block)
    tiles = tiles._replace(queries=min(tiles.queries, 64))
    rows = queries.stop - queries.start
    strides = bits.expand(at.batch, -1, -1).stride()
    launch(
        masses_kernel,
        (triton.cdiv(rows, tiles.queries), at.batch * at.head),
        **arguments(attention, tiles),
        lse=lse,
        bits=bits,
        out=out,
        N=out.shape[-1],
        **dict(zip(["bits_b", "bits_q", "bits_k"], strides, strict=True)),
        first_query=queries.start,
        end_query=queries.stop,
        first_key=keys.start,
        end_key=keys.stop,
    )
