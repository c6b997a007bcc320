"""Every backend against the float64 definition: masks, heads, sizes, dtypes, activations."""

from __future__ import annotations

import pytest
import torch
from fixtures.kernels import MASKS
from together import over

from interp_kernels import (
    Diagonal,
    Entropy,
    LogSumExp,
    Output,
    PooledMap,
    Received,
    ResultNorm,
    Rows,
    SegmentToSegment,
    attention_statistics,
    chunked,
    gpu,
)
from interp_kernels.self_test import every_reduction

# Triton's interpreter takes half a second per call: it gets one of every kind here, and other
# numbers of heads, other activations and sizes in interpreted.py.
HEADS, UNNORMALISED = [(4, 4), (4, 2), (4, 1), (1, 1)], MASKS
POOLS, BLOCKS = [1, 3, 7, 16, 64, 100], [1, 2, 5, 16, 48, 64, 1000]
if gpu.interpreted():
    HEADS, UNNORMALISED = [(4, 2)], ["window", "left padding", "softcap"]
    POOLS, BLOCKS = [3, 64], [16, 64]  # smaller tiles are rounded up to 16


def test_memory_is_poisoned():
    assert torch.empty(3).isnan().all()


@over("heads", HEADS)
@over("mask", MASKS)
def test_masks_and_heads(calls, conforms, mask, heads):
    call = calls.make(heads=heads, **calls.masks(mask, 2, heads[0], (13, 13)))
    conforms(call, block=5)


@over("activation", ["sigmoid", "relu", "signed"])
@over("mask", UNNORMALISED)
def test_unnormalised_activations(calls, conforms, mask, activation):
    if "sinks" in mask or mask == "all at once":
        pytest.skip("only a softmax has sinks")
    call = calls.make(activation=activation, **calls.masks(mask))
    conforms(call, block=4)


@over("sizes", [(1, 1), (2, 2), (63, 63), (65, 65), (5, 70), (70, 5), (1, 64), (129, 128)])
@over("causal", [True, False])
def test_awkward_sizes(calls, conforms, sizes, causal):
    call = calls.make(batch=1, heads=(2, 1), sizes=sizes, causal=causal)
    conforms(call)


@pytest.mark.parametrize("mask", ["causal", "all at once", "huggingface"])
def test_a_thousand_tokens(calls, conforms, mask):
    call = calls.make(heads=(2, 1), sizes=(1000, 1000), **calls.masks(mask, 2, 2, (1000, 1000)))
    conforms(call)


@pytest.mark.slow
def test_four_thousand_and_ninety_seven_tokens(calls, conforms):
    call = calls.make(batch=1, heads=(1, 1), sizes=(4097, 4097), widths=(16, 16))
    conforms(call)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@over("mask", ["causal", "none", "sinks", "bias"])
def test_dtypes(calls, conforms, dtype, mask):
    call = calls.make(sizes=(33, 33), dtype=dtype, **calls.masks(mask, 2, 4, (33, 33)))
    found = conforms(call)
    assert found["output"].dtype == dtype
    assert found["entropy"].dtype == call.work_dtype


@pytest.mark.parametrize("spread", [0.0, 6.0, 30.0])
def test_flat_and_sharp_patterns(calls, conforms, spread):
    """Scores up to thousands: one-hot rows, where entropy by cancellation would drown."""
    call = calls.make(sizes=(40, 40), spread=spread)
    # A weight looked up as exp(score - lse) inherits the rounding of the score itself.
    score = float((call.q.abs().amax() * call.k.abs().amax()) * call.q.shape[-1] * call.scale)
    conforms(call, ulps=8 + score)
    # One pass on a CPU has each weight beside its row's maximum, and sums q·k as PyTorch does.
    # Triton sums it in another order, which at such scores alone moves the output by more than
    # the bound, and its columns are a second pass: there the first bound is the one that holds.
    if conforms.backend != "triton":
        conforms(call, [Entropy(), Received(), LogSumExp(), Output()])


@over("pool", POOLS)
@over("block", BLOCKS)
def test_pool_and_query_block_of_any_sizes(calls, conforms, pool, block):
    call = calls.make(batch=1, heads=(2, 1), sizes=(67, 67))
    segment = (torch.arange(67) // 10)[None]
    asked = [PooledMap(pool), SegmentToSegment(segment, segment, 7, 7), Received()]
    conforms(call, asked, block=block)


def test_many_short_prompts_of_several_heads(calls, conforms):
    """Prompts and heads taken together in one block must not mix."""
    call = calls.make(batch=9, heads=(6, 3), sizes=(17, 17))
    conforms(call)


@pytest.mark.parametrize("scores", [1, 300, 1500])
def test_few_scores_in_flight(calls, conforms, monkeypatch, scores):
    """Chunked: one key-value head at a time, some of a prompt's, all of a prompt's."""
    monkeypatch.setattr(chunked, "SCORES", scores)
    monkeypatch.setattr(chunked, "FEWEST", 6)
    call = calls.make(batch=3, heads=(6, 3), sizes=(17, 17), key_padding=torch.rand(3, 17) < 0.8)
    conforms(call)


def test_16_bit_inputs_lose_nothing_without_a_pattern(calls, conforms):
    """PyTorch's own kernel rounds its output; a norm must not be taken of that."""
    call = calls.make(dtype=torch.bfloat16, widths=(8, 8), sizes=(50, 50))
    conforms(call, [Output(), ResultNorm()])
    conforms(call, [ResultNorm(), LogSumExp()])


@over("offset", [-2, 0, 3])
@over("sizes", [(6, 6), (4, 6)])
def test_causal_with_any_offset_without_a_pattern(calls, conforms, offset, sizes):
    """PyTorch's own causal mask knows one offset only."""
    call = calls.make(widths=(8, 8), sizes=sizes, offset=offset)
    conforms(call, [Output(), LogSumExp(), Diagonal((0, 1))])


def test_a_float_mask_hides_with_the_lowest_numbers_of_its_own_dtype(calls, conforms):
    bias = torch.zeros(5, 5, dtype=torch.float16)
    bias[1], bias[2, 0], bias[3, 0], bias[4, 0] = (
        torch.finfo(bias.dtype).min,
        -40_000,
        -9,
        -torch.inf,
    )
    call = calls.make(sizes=(5, 5), bias=bias)
    found = conforms(call)
    assert found["lse"][0, 0, 1] == -torch.inf
    whole = attention_statistics(call, [Rows((2, 3, 4))])["rows"]
    assert whole[0, 0, 0, 0] == 0
    assert whole[0, 0, 1, 0] > 0
    assert whole[0, 0, 2, 0] == 0
    low = torch.full((5, 5), -40_000.0)
    for bias, hidden in ((low, False), (low.half(), True), (low * 1e26, True)):
        call = calls.make(sizes=(5, 5), bias=bias)
        assert conforms(call, [LogSumExp()])["lse"].isinf().all() == hidden


def test_strided_and_expanded_tensors(calls, conforms):
    plain = calls.make(sizes=(11, 11), heads=(4, 4))
    turned = calls.make(sizes=(11, 11), heads=(4, 4))
    for name in "qkv":
        strided = getattr(plain, name).transpose(1, 2).contiguous().transpose(1, 2)
        assert not strided.is_contiguous()
        object.__setattr__(turned, name, strided)
    conforms(turned, block=4)

    shared = calls.make(sizes=(11, 11), heads=(4, 1))
    for name in "kv":
        object.__setattr__(shared, name, getattr(shared, name).expand(2, 4, 11, -1))
    conforms(shared, block=4)


@over(("batch", "sizes"), [(0, (3, 3)), (2, (0, 3)), (2, (3, 0)), (1, (0, 0)), (0, (0, 0))])
@over("activation", ["softmax", "relu"])
def test_zero_lengths_are_empty_or_zero(calls, backend, batch, sizes, activation):
    call = calls.make(batch=batch, sizes=sizes, activation=activation)
    asked = every_reduction(call)
    found = attention_statistics(call, asked, backend=backend)
    truth = attention_statistics(call, asked, backend="reference")
    for r in asked:
        torch.testing.assert_close(found[r], truth[r], msg=lambda m, r=r: f"{r.name}: {m}")


def test_rows_without_a_visible_key(calls, backend):
    """Their answer is fixed: 0 throughout, log-sum-exp -inf, key -1."""
    padding = torch.arange(6) >= torch.tensor([[0], [4]])
    call = calls.make(sizes=(6, 6), key_padding=padding)
    found = attention_statistics(call, every_reduction(call), backend=backend)
    for name in ("output", "entropy", "distance", "even", "previous", "result_norm", "first"):
        assert (found[name][1, :, :4] == 0).all(), name
        assert found[name][0].abs().sum() > 0, name
    assert (found["lse"][1, :, :4] == -torch.inf).all()
    assert (found["largest"].weight[1, :, :4] == 0).all()
    assert (found["largest"].key[1, :, :4] == -1).all()
    assert (found["top_k"].key[1, :, :4] == -1).all()
    assert (found["received"][1, :, :4] == 0).all()
    assert (found["moments"].maximum[1, :, :4] == -torch.inf).all()


def test_a_sink_takes_its_share_and_keeps_an_empty_row(calls, backend):
    sinks = torch.tensor([0.0, 5.0, -5.0, 2.0])
    call = calls.make(sizes=(3, 3), sinks=sinks, bias=torch.eye(3).bool())
    zero = calls.make(sizes=(3, 3), sinks=sinks, bias=torch.zeros(3, 3, dtype=torch.bool))
    asked = [LogSumExp(), Received()]
    found = attention_statistics(call, asked, backend=backend)
    own = (call.q * call.k.repeat_interleave(2, 1)).sum(-1) * call.scale
    torch.testing.assert_close(found["received"], torch.sigmoid(own - sinks[:, None]))
    found = attention_statistics(zero, asked, backend=backend)
    torch.testing.assert_close(found["lse"], sinks[:, None].expand(2, 4, 3))
    assert (found["received"] == 0).all()


def test_inputs_are_left_alone(calls, backend):
    call = calls.make(**calls.masks("all at once"))
    before = [x.clone() for x in (call.q, call.k, call.v, call.bias, call.tokens)]
    attention_statistics(call, every_reduction(call), backend=backend)
    for old, new in zip(before, (call.q, call.k, call.v, call.bias, call.tokens), strict=True):
        assert torch.equal(old, new)
