"""Which implementation ran, in which mode, with how much memory; and what an import costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from fixtures.kernels import MASKS
from together import over

from interp_kernels import (
    BACKENDS,
    AttentionShape,
    BackendUnavailable,
    Diagonal,
    Entropy,
    InvalidAttention,
    InvalidReduction,
    KeySetMass,
    LogSumExp,
    Mass,
    Output,
    PairMass,
    Received,
    ResultNorm,
    Rows,
    Tile,
    TooLittleMemory,
    api,
    attention_statistics,
    backends,
    cheap,
    chunked,
    estimate_memory,
    reference,
    stock,
)
from interp_kernels.self_test import every_reduction

CHEAP = [Diagonal((0, 1)), KeySetMass("first", (0,)), Rows((0, 3))]


def test_auto_says_what_it_chose_and_results_go_by_name_or_reduction(calls):
    entropy = Entropy()
    call = calls.make()
    found = attention_statistics(call, [entropy])
    assert found.backend == next(n for n in BACKENDS if backends.why_not(n, call) is None)
    assert found.mode == "fused"
    assert found[entropy] is found["entropy"]
    with pytest.raises(KeyError, match="'lse' was not requested; these were: entropy"):
        found["lse"]


def test_an_explicit_backend_is_refused_rather_than_replaced(calls, monkeypatch):
    with pytest.raises(BackendUnavailable, match="'fpga' is not known; known: auto, "):
        attention_statistics(calls.make(), [Entropy()], backend="fpga")
    monkeypatch.setattr(chunked, "missing", lambda: "no such device")
    with pytest.raises(BackendUnavailable, match="'chunked' cannot run here: no such device"):
        attention_statistics(calls.make(), [Entropy()], backend="chunked")
    monkeypatch.undo()
    monkeypatch.setattr(chunked, "unsupported", lambda call, asked: "entropy is beyond it")
    with pytest.raises(BackendUnavailable, match="cannot do this: entropy is beyond it"):
        attention_statistics(calls.make(), [Entropy()], backend="chunked")
    monkeypatch.setitem(BACKENDS, "chunked", "interp_kernels.chunked")
    assert attention_statistics(calls.make(), [Entropy()], backend="auto").backend != "chunked"


def test_modes_are_named(calls):
    with pytest.raises(BackendUnavailable, match="mode 'stored' is not known; known: fused, obs"):
        attention_statistics(calls.make(), [Entropy()], mode="stored")


def test_observer_returns_the_models_own_output_untouched(calls, backend):
    call = calls.make()
    own = torch.randn(2, 4, 13, 6)
    asked = [Output(), ResultNorm(), Entropy()]
    found = attention_statistics(call, asked, backend=backend, mode="observer", output=own)
    assert found["output"] is own
    torch.testing.assert_close(found["result_norm"], own.norm(dim=-1))
    assert found.mode == "observer"


@over("activation", ["softmax", "signed", "relu"])
@over("mask", MASKS)
def test_looking_up_equals_forming_the_pattern(calls, conforms, mask, activation):
    """With the model's log-sum-exp, without it, and beside a pass over the pattern."""
    masks = calls.masks(mask)
    if activation != "softmax" and "sinks" in masks:
        pytest.skip("only a softmax has sinks")
    call = calls.make(activation=activation, **masks)
    conforms(call, CHEAP)
    conforms(call, [*CHEAP, Entropy()])
    if call.normalised:
        lse = reference.log_sum_exp(call, reference.scores(call))
        conforms(call, CHEAP, mode="observer", lse=lse)


@over("beside", [[], [Entropy()]])
@over("count", [1, 64, 65, 80])
def test_key_sets_of_any_size(calls, conforms, count, beside):
    call = calls.make(sizes=(80, 80), start=(0, 30))
    conforms(call, [KeySetMass("set", tuple(range(count))), *beside])


@over("at_once", [1, 64, 1000])
@over("mask", MASKS)
def test_looking_up_a_few_at_a_time(calls, conforms, mask, monkeypatch, at_once):
    """Also at distances that no query, some or all have, forwards ones included."""
    monkeypatch.setattr(cheap, "CHUNK", at_once)
    monkeypatch.setattr(cheap, "CACHED", at_once)
    call = calls.make(sizes=(13, 15), **calls.masks(mask, sizes=(13, 15)))
    pairs = torch.cartesian_prod(torch.arange(2), torch.arange(15), torch.arange(0, 15, 4))
    asked = [
        *(Diagonal((-15, -2, 0, 1, 1, 12, 14, 40)), Diagonal((), name="none")),
        *(KeySetMass("set", (0, 1, 5, 14)), PairMass("pairs", pairs), Rows((0, 12))),
        Tile((3, 4, 5, 6), (0, 2)),
    ]
    conforms(call, asked)


def test_cheap_reductions_form_no_pattern(calls, monkeypatch):
    """Neither does a predicate that rarely holds."""

    def no_pass(request, reductions):
        assert not reductions, f"formed the pattern for {[r.name for r in reductions]}"
        return {}

    monkeypatch.setattr(chunked, "in_blocks", no_pass)
    call = calls.make(widths=(8, 8))
    assert stock.serves(call)
    own = Mass("own", lambda query, key, tokens: key == query)
    asked = [*CHEAP, own, Output(), LogSumExp()]
    found = attention_statistics(call, asked, backend="chunked")
    torch.testing.assert_close(found["own"], found["diagonal"][..., 0])
    common = Mass("common", lambda query, key, tokens: key <= query)
    monkeypatch.setattr(chunked, "SPARSE_PAIRS", 2)
    with pytest.raises(AssertionError, match="formed the pattern for"):
        attention_statistics(call, [common], backend="chunked")


@over("mask", MASKS)
def test_the_kernel_torch_ships_gives_the_same_output_and_log_sum_exp(calls, conforms, mask):
    for masks in (calls.masks(mask),):
        call = calls.make(widths=(8, 8), **masks)
        if stock.serves(call):
            conforms(call, [Output(), LogSumExp(), ResultNorm()])
    assert stock.serves(call) or mask in ("softcap", "sinks", "high sinks", "all at once")


def test_given_tensors_must_fit(calls, backend):
    call, lse = calls.make(), torch.zeros(2, 4, 13)
    ask = {"backend": backend, "mode": "observer"}
    with pytest.raises(InvalidAttention, match=r"lse has shape \[2, 13\]; expected \[2, 4, 13\]"):
        attention_statistics(call, CHEAP, lse=lse[:, 0], **ask)
    with pytest.raises(InvalidAttention, match="output has shape"):
        attention_statistics(call, CHEAP, output=torch.zeros(2, 4, 13, 8), **ask)
    with pytest.raises(InvalidAttention, match="give it with mode='observer'"):
        attention_statistics(call, CHEAP, lse=lse, backend=backend)
    with pytest.raises(InvalidAttention, match="have no log-sum-exp; leave out lse"):
        attention_statistics(calls.make(activation="relu"), CHEAP, lse=lse, **ask)
    for wrong in (0.0, 1e4, -torch.inf, torch.nan):
        with pytest.raises(InvalidAttention, match="does not belong to this call"):
            attention_statistics(call, CHEAP, lse=lse + wrong, **ask)


def test_blocks_never_change_a_result(calls, backend):
    call = calls.make(sizes=(37, 37))
    asked = every_reduction(call)
    whole = attention_statistics(call, asked, backend=backend)
    for block in (1, 8, 36):
        found = attention_statistics(call, asked, backend=backend, block=block)
        for r in asked:
            torch.testing.assert_close(found[r], whole[r], msg=lambda m, r=r: f"{r.name}: {m}")
    with pytest.raises(InvalidReduction, match="block is 0"):
        attention_statistics(call, asked, backend=backend, block=0)


def test_too_little_memory_is_said_before_anything_runs(calls, backend):
    call = calls.make(sizes=(40, 40))
    with pytest.raises(TooLittleMemory, match="1,000 are free"):
        attention_statistics(call, [Received()], backend=backend, memory=1000)
    least = estimate_memory(call, [Received()], backend, block=1)
    found = attention_statistics(call, [Received()], backend=backend, memory=least)
    plain = attention_statistics(call, [Received()], backend="reference")
    torch.testing.assert_close(found["received"], plain["received"])
    with pytest.raises(TooLittleMemory):
        attention_statistics(call, [Received()], backend=backend, memory=least - 1)


def test_only_calls_that_take_more_look_at_what_is_free(calls, backend, monkeypatch):
    call = calls.make(sizes=(40, 40))
    plain = attention_statistics(call, [Received()], backend=backend)
    monkeypatch.setattr(api, "free_memory", lambda device: 1000)
    again = attention_statistics(call, [Received()], backend=backend)
    assert torch.equal(again["received"], plain["received"])
    monkeypatch.setattr(api, "SMALL", estimate_memory(call, [Received()], backend) - 1)
    with pytest.raises(TooLittleMemory, match="1,000 are free"):
        attention_statistics(call, [Received()], backend=backend)


def test_estimates_grow_with_tokens_not_with_their_square(backend):
    def bytes_at(tokens, name):
        shape = AttentionShape(1, 12, 12, tokens, tokens, 64, 64)
        return estimate_memory(shape, [Entropy(), Received(), Output()], name)

    assert bytes_at(65_536, backend) < 5 * bytes_at(16_384, backend)
    assert bytes_at(16_384, "reference") > 12 * 16_384**2 * 4
    assert bytes_at(16_384, backend) < bytes_at(16_384, "reference") / 20


@pytest.mark.slow
def test_a_call_takes_no_more_memory_than_was_estimated(backend):
    """Growth of the process's peak, in a process of its own; the pattern alone would be 1 GiB."""
    code = f"""
import resource, torch
from interp_kernels import *
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def call(n):
    q, k, v = (torch.randn(1, 4, n, 32) for _ in range(3))
    return Attention(q=q, k=k, v=v, causal=True)
asked = [Output(), LogSumExp(), Entropy(), Received(), PooledMap(64)]
attention_statistics(call(64), asked, backend={backend!r})  # compiled and warm
large = call(8192)
before = peak()
attention_statistics(large, asked, backend={backend!r})
print(peak() - before, estimate_memory(large, asked, {backend!r}))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300
    )
    growth, estimate = (int(word) for word in ran.stdout.split())
    assert growth < 1.1 * estimate + 16 * 2**20
    assert estimate < 4 * 4 * 8192**2 / 8


def test_importing_loads_no_torch_and_no_compiler():
    code = (
        "import sys, interp_kernels; "
        "heavy = {'torch', 'numba', 'triton', 'transformers'} & set(sys.modules); "
        "assert not heavy, heavy; "
        "from interp_kernels import Mass, Entropy; "
        "assert 'torch' not in sys.modules; "
        "interp_kernels.attention_statistics; "
        "assert not {'numba', 'triton', 'interp'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
