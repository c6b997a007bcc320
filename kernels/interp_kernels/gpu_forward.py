"""Triton kernels of the forward pass: rows of the pattern by an online softmax over tiles of keys.

Each program processes one block of queries. Per row it keeps the peak m, the sum l of exp(score -
m), a = sum of exp(score - m) (score - m), and the other requested statistics. A new peak rescales
them: l <- alpha l, a <- alpha (a + (m_old - m_new) l), with alpha = exp(m_old - m_new). Triton is
imported only with this module.
"""

# The bodies of kernels are Triton, typed by its compiler:
# pyright: reportCallIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl

from interp_kernels.gpu_tiles import EXTRA, Tiles, padded, tiles_for
from interp_kernels.problem import HIDDEN_BELOW

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.problem import Attention

# Score of a hidden key: far below any other, with room to subtract from it.
HIDDEN = tl.constexpr(-1.7e38)
# The interpreter would multiply the bits of bfloat16 numbers, so they are widened first.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
ACTIVATIONS = {"softmax": 0, "signed": 1, "sigmoid": 2, "relu": 3}


@triton.jit
def load_tile(start, row, column, rows, columns, row_stride, column_stride):
    """Load a tile of a strided matrix, 0 outside it, with 64-bit offsets for 2^31 elements."""
    where = row.to(tl.int64)[:, None] * row_stride + column.to(tl.int64)[None, :] * column_stride
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    return tl.load(start + where, mask=inside, other=0.0)


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """Compute a @ b, summed in float32."""
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def soft_capped(score, cap):
    """Compute cap tanh(score / cap), by a series near 0, where the quotient would cancel."""
    x = score / cap
    y = x * x
    series = 1 + y * (-1 / 3 + y * (2 / 15 + y * (-17 / 315 + y * (62 / 2835))))
    falling = tl.exp(-2 * tl.abs(x))
    quotient = (1 - falling) / (1 + falling)
    return cap * tl.where(tl.abs(x) < 0.25, x * series, tl.where(x < 0, -quotient, quotient))


@triton.jit
def score_tile(
    q,
    k,
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
    CAPPED: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    BIAS: tl.constexpr,
    KEY_PADDING: tl.constexpr,
    QUERY_PADDING: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute scores of queries i and keys j, and their visibility; pointers are of this head."""
    score = product(q, tl.trans(k), PRECISION) * scale
    if CAPPED:
        score = soft_capped(score, cap)
    seen = (i < n_query)[:, None] & (j < n_key)[None, :]
    if CAUSAL:
        seen = seen & (j[None, :] <= i[:, None] + offset)
    if WINDOW:
        seen = seen & (j[None, :] > i[:, None] + (offset - window))
    if KEY_PADDING:
        seen = seen & (tl.load(key_padding + j, mask=j < n_key, other=0) != 0)[None, :]
    if QUERY_PADDING:
        seen = seen & (tl.load(query_padding + i, mask=i < n_query, other=0) != 0)[:, None]
    if BIAS:
        where = i.to(tl.int64)[:, None] * bias_q + j.to(tl.int64)[None, :] * bias_k
        if BIAS == 1:
            added = tl.load(bias + where, mask=seen, other=0.0).to(tl.float32)
            score += added
            seen = seen & (added > hidden_below)
        else:
            seen = seen & (tl.load(bias + where, mask=seen, other=0) != 0)
    return score, seen


@triton.jit
def sigmoid(score):
    """Compute 1 / (1 + exp(-score)), by an exponential that never overflows."""
    falling = tl.exp(-tl.abs(score))
    return tl.where(score < 0, falling, 1.0) / (1 + falling)


@triton.jit
def weight_tile(score, seen, lse, ACTIVATION: tl.constexpr):
    """Compute weights and their magnitudes from each row's log-sum-exp (if one is needed)."""
    if ACTIVATION == 2:
        weight = sigmoid(tl.where(seen, score, 0.0))
    elif ACTIVATION == 3:
        weight = tl.maximum(score, 0.0)
    elif ACTIVATION == 1:
        weight = tl.exp(tl.where(seen, tl.abs(score), HIDDEN) - lse[:, None])
        weight = tl.where(score < 0, -weight, tl.where(score > 0, weight, 0.0))
    else:
        weight = tl.exp(tl.where(seen, score, HIDDEN) - lse[:, None])
    # Rows without a visible key have lse -inf and infinite weights, which are overwritten here.
    weight = tl.where(seen, weight, 0.0)
    return weight, tl.abs(weight)


@triton.jit
def add_product(weight, v, acc, SPLIT: tl.constexpr, PRECISION: tl.constexpr):
    """Compute acc + weight @ v.

    16-bit values are multiplied by weights rounded once (as in any fast kernel) or, if split, by
    three parts that add up to the float32 weight.
    """
    if v.dtype == tl.float32:
        acc += product(weight, v, PRECISION)
    else:
        high = weight.to(v.dtype)
        acc += product(high, v, PRECISION)
        if SPLIT:
            rest = weight - high.to(tl.float32)
            middle = rest.to(v.dtype)
            acc += product(middle, v, PRECISION)
            acc += product((rest - middle.to(tl.float32)).to(v.dtype), v, PRECISION)
    return acc


@triton.jit
def forward_kernel(  # noqa: PLR0912, PLR0915 - one loop; what is not asked is compiled out
    q,
    k,
    v,
    bias,
    key_padding,
    query_padding,
    sinks,
    out,
    lse,
    entropy,
    top,
    top_key,
    distance,
    mean,
    variance,
    maximum,
    q_b,
    q_h,
    q_n,
    q_d,
    k_b,
    k_h,
    k_n,
    k_d,
    v_b,
    v_h,
    v_n,
    v_d,
    bias_b,
    bias_h,
    bias_q,
    bias_k,
    heads,
    group,
    v_group,
    n_query,
    n_key,
    d,
    d_v,
    scale,
    cap,
    offset,
    window,
    hidden_below,
    D: tl.constexpr,
    DV: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    ACTIVATION: tl.constexpr,
    CAPPED: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    BIAS: tl.constexpr,
    KEY_PADDING: tl.constexpr,
    QUERY_PADDING: tl.constexpr,
    SINKS: tl.constexpr,
    VALUES: tl.constexpr,
    SIZES: tl.constexpr,
    SPLIT: tl.constexpr,
    LSE: tl.constexpr,
    ENTROPY: tl.constexpr,
    TOP: tl.constexpr,
    DISTANCE: tl.constexpr,
    MOMENTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Process one block of queries of one head, against all the keys in its reach."""
    block = tl.program_id(0)
    if CAUSAL:  # the longest rows first, so that the device stays busy until the end
        block = tl.num_programs(0) - 1 - block
    head = tl.program_id(1)
    b = (head // heads).to(tl.int64)
    h = (head % heads).to(tl.int64)
    first = block * BM
    i = first + tl.arange(0, BM)
    across = tl.arange(0, D)
    along = tl.program_id(2) * DV + tl.arange(0, DV)
    k += b * k_b + (h // group) * k_h
    v += b * v_b + (h // v_group) * v_h
    bias += b * bias_b + h * bias_h
    key_padding += b * n_key
    query_padding += b * n_query
    queries = load_tile(q + b * q_b + h * q_h, i, across, n_query, d, q_n, q_d)

    m = tl.full([BM], HIDDEN, tl.float32)
    # sum of magnitudes: less than `l` only where a signed score is 0
    total = tl.zeros([BM], tl.float32)
    l = tl.zeros([BM], tl.float32)  # noqa: E741 - as in every paper on it
    a = tl.zeros([BM], tl.float32)
    key_of_m = tl.full([BM], -1, tl.int32)
    sign_of_m = tl.zeros([BM], tl.float32)
    far = tl.zeros([BM], tl.float32)
    count = tl.zeros([BM], tl.float32)
    centre = tl.zeros([BM], tl.float32)
    apart = tl.zeros([BM], tl.float32)
    highest = tl.full([BM], HIDDEN, tl.float32)
    acc = tl.zeros([BM, DV], tl.float32)

    low = 0
    high = n_key
    if CAUSAL:
        high = tl.minimum(n_key, tl.maximum(0, offset + first + BM))
    if WINDOW:
        low = tl.maximum(0, offset + first - window + 1) // BN * BN
    for start in range(low, high, BN):
        j = start + tl.arange(0, BN)
        keys = load_tile(k, j, across, n_key, d, k_n, k_d)
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
        if MOMENTS:  # means and squares of this tile, merged with those before
            here = tl.sum(tl.where(seen, 1.0, 0.0), 1)
            middle = tl.sum(tl.where(seen, score, 0.0), 1) / tl.maximum(here, 1.0)
            off = tl.where(seen, score - middle[:, None], 0.0)
            shift = middle - centre
            both = tl.maximum(count + here, 1.0)
            apart += tl.sum(off * off, 1) + shift * shift * (count * here / both)
            centre += shift * (here / both)
            count += here
            highest = tl.maximum(highest, tl.max(tl.where(seen, score, HIDDEN), 1))
        size = tl.abs(score) if ACTIVATION == 1 else score
        size = tl.where(seen, size, HIDDEN)
        peak = tl.max(size, 1)
        if TOP:
            at_peak = (size == peak[:, None]) & seen
            where = tl.min(tl.where(at_peak, j[None, :], 2147483647), 1)
            if ACTIVATION == 1:
                here_only = tl.where(j[None, :] == where[:, None], score, 0.0)
                sign_of_m = tl.where(peak > m, tl.sum(here_only, 1), sign_of_m)
            key_of_m = tl.where(peak > m, where, key_of_m)
        m_new = tl.maximum(m, peak)
        if ACTIVATION <= 1:
            below = tl.where(seen, size - m_new[:, None], 0.0)
            p = tl.where(seen, tl.exp(below), 0.0)
            alpha = tl.exp(m - m_new)
            if ENTROPY:
                a = alpha * (a + (m - m_new) * total)
            l = l * alpha + tl.sum(p, 1)  # noqa: E741
            if ACTIVATION == 1:
                p = tl.where(score == 0, 0.0, p)
            total = total * alpha + tl.sum(p, 1)
            if ENTROPY:
                a += tl.sum(p * below, 1)
            far *= alpha
            acc *= alpha[:, None]
        else:
            p, _ = weight_tile(score, seen, m, ACTIVATION)
            if ENTROPY:
                a += tl.sum(p * tl.log(tl.where(p > 0, p, 1.0)), 1)
        m = m_new
        if DISTANCE:
            steps = tl.abs(i[:, None] + offset - j[None, :]).to(tl.float32)
            far += tl.sum(p * steps, 1)
        if VALUES:
            values = load_tile(v, j, along, n_key, d_v, v_n, v_d)
            if ACTIVATION == 1 and not SIZES:
                p = tl.where(score < 0, -p, p)
            acc = add_product(p, values, acc, SPLIT, PRECISION)

    empty = m <= HIDDEN
    inside = i < n_query
    row = head.to(tl.int64) * n_query + i
    share = tl.full([BM], 1.0, tl.float32)  # exp(-log_total), the normaliser of every sum
    log_total = tl.zeros([BM], tl.float32)
    if ACTIVATION <= 1:
        log_total = tl.log(tl.where(empty, 1.0, l))
        share = 1 / tl.where(empty, 1.0, l)
        of_empty = tl.full([BM], float("-inf"), tl.float32)
        if SINKS:  # in logarithms, since a sink may be far above every score
            sink = tl.load(sinks + h).to(tl.float32)
            of_empty = tl.zeros([BM], tl.float32) + sink
            over = tl.where(empty, 0.0, sink - m)
            upper = tl.maximum(log_total, over)
            log_total = upper + tl.log(tl.exp(log_total - upper) + tl.exp(over - upper))
            share = tl.exp(-log_total)
        if LSE:
            tl.store(lse + row, tl.where(empty, of_empty, m + log_total), mask=inside)
    share = tl.where(empty, 0.0, share)
    if ENTROPY:
        if ACTIVATION <= 1:
            a -= log_total * total
        tl.store(entropy + row, -share * a, mask=inside)
    if TOP:
        weight = share
        if ACTIVATION == 1:
            weight = tl.where(sign_of_m < 0, -share, tl.where(sign_of_m > 0, share, 0.0))
        elif ACTIVATION == 2:
            weight = tl.where(empty, 0.0, sigmoid(m))
        elif ACTIVATION == 3:
            weight = tl.maximum(m, 0.0)
        tl.store(top + row, weight, mask=inside)
        tl.store(top_key + row, tl.where(weight == 0, -1, key_of_m).to(tl.int64), mask=inside)
    if DISTANCE:
        tl.store(distance + row, far * share, mask=inside)
    if MOMENTS:
        tl.store(mean + row, centre, mask=inside)
        tl.store(variance + row, apart / tl.maximum(count, 1.0), mask=inside)
        highest = tl.where(count > 0, highest, float("-inf"))
        tl.store(maximum + row, highest, mask=inside)
    if VALUES:
        where = row[:, None] * d_v + along[None, :]
        result = (acc * share[:, None]).to(out.dtype.element_ty)
        tl.store(out + where, result, mask=inside[:, None] & (along < d_v)[None, :])


def precision() -> str:
    """Return the precision of float32 products: exact, unless torch allows TF32."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def arguments(attention: Attention, tiles: Tiles) -> dict[str, Any]:
    """Return the arguments common to every kernel: the call, its masks and its sizes."""
    at, none = attention.shape, attention.q
    bias, kind, hidden_below, strides = none, 0, 0.0, (0, 0, 0, 0)
    if isinstance(attention.bias, torch.Tensor):  # any other is refused before
        bias = attention.bias.expand(at.batch, at.head, at.query, at.key)
        kind = 2 if bias.dtype == torch.bool else 1
        hidden_below = attention.hidden_below() if kind == 1 else 0.0
        bias = bias.view(torch.uint8) if kind == 2 else bias
        strides = bias.stride()
    if attention.relative_bias is not None:  # entry key - query + queries - 1
        bias, kind, hidden_below = attention.relative_bias.contiguous(), 1, HIDDEN_BELOW
        strides = (0, bias.stride(0) if len(bias) > 1 else 0, -1, 1)
        bias = bias.flatten()[at.query - 1 :]
    masks = [attention.key_padding, attention.query_padding]
    padding = [none if m is None else m.to(torch.uint8).contiguous() for m in masks]
    found = {
        "q": attention.q,
        "k": attention.k,
        "bias": bias,
        "key_padding": padding[0],
        "query_padding": padding[1],
        "heads": at.head,
        "group": at.group,
        "n_query": at.query,
        "n_key": at.key,
        "d": at.d,
        "scale": float(attention.scale),
        "cap": float(attention.softcap or 1.0),
        "offset": attention.offset,
        "window": attention.window or 0,
        "hidden_below": hidden_below,
        "D": padded(at.d),
        "BM": tiles.queries,
        "BN": tiles.keys,
        "ACTIVATION": ACTIVATIONS[attention.activation],
        "CAPPED": attention.softcap is not None,
        "CAUSAL": attention.causal,
        "WINDOW": attention.window is not None,
        "BIAS": kind,
        "KEY_PADDING": attention.key_padding is not None,
        "QUERY_PADDING": attention.query_padding is not None,
        "PRECISION": precision(),
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
        "enable_fp_fusion": True,
    }
    for name, sizes in (("q", attention.q.stride()), ("k", attention.k.stride())):
        found |= dict(zip([f"{name}_{axis}" for axis in "bhnd"], sizes, strict=True))
    return found | dict(zip([f"bias_{axis}" for axis in "bhqk"], strides, strict=True))


def launch(kernel: Any, grid: tuple[int, ...], **given: Any) -> None:
    """Start a kernel; constants and pointers alike are plain values here."""
    kernel[grid](**given)


class Rows(NamedTuple):
    """Results of the forward kernel; None where not requested."""

    out: Tensor | None
    lse: Tensor | None
    entropy: Tensor | None
    top: Tensor | None
    top_key: Tensor | None
    distance: Tensor | None
    mean: Tensor | None
    variance: Tensor | None
    maximum: Tensor | None


def forward(
    attention: Attention,
    asked: frozenset[str],
    *,
    values: Tensor | None = None,
    out_dtype: torch.dtype = torch.float32,
    sizes: bool = False,
    split: bool = True,
    block: int | None = None,
) -> Rows:
    """Launch the forward kernel once.

    Args:
        attention: the attention call.
        asked: any of lse, entropy, top, distance, moments.
        values: [batch, kv_head or head, key, n] to multiply by the pattern, with any strides.
        out_dtype: dtype of the product.
        sizes: multiply |P| instead of P.
        split: use float32 weights with 16-bit values.
        block: queries at a time.
    """
    at, none = attention.shape, attention.q
    rows = (at.batch, at.head, at.query)

    def made(name: str, dtype: torch.dtype = torch.float32) -> Tensor | None:
        return torch.empty(rows, dtype=dtype, device=none.device) if name in asked else None

    moments = [made("moments") for _ in range(3)]
    d_v = at.d_v if values is None else values.shape[-1]
    out = None if values is None else torch.empty(*rows, d_v, dtype=out_dtype, device=none.device)
    found = Rows(
        out,
        made("lse"),
        made("entropy"),
        made("top"),
        made("top", torch.int64),
        made("distance"),
        *moments,
    )
    v = none if values is None else values
    width = padded(d_v) if values is None or values is attention.v else min(padded(d_v), EXTRA)
    width = 16 if values is None else width
    tiles = tiles_for(max(padded(at.d), width), none.element_size(), block)
    grid = (triton.cdiv(at.query, tiles.queries), at.batch * at.head, triton.cdiv(d_v, width))
    launch(
        forward_kernel,
        grid if values is not None else (*grid[:2], 1),
        **arguments(attention, tiles),
        **{name: none if x is None else x for name, x in found._asdict().items()},
        v=v,
        sinks=none if attention.sinks is None else attention.sinks.contiguous(),
        **dict(zip(["v_b", "v_h", "v_n", "v_d"], v.stride(), strict=True)),
        v_group=at.head // v.shape[1],
        d_v=d_v,
        DV=width,
        SINKS=attention.sinks is not None,
        VALUES=values is not None,
        SIZES=sizes,
        SPLIT=split,
        **{
            name.upper(): name in asked for name in ("lse", "entropy", "top", "distance", "moments")
        },
    )
    return found
