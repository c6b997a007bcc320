"""The Triton kernels on small CPU tensors, run as Python. Not collected by name: `test_gpu.py` runs
this file in a process where TRITON_INTERPRET=1 is set before triton is imported."""

from __future__ import annotations

import os

import pytest
import torch

from interp_kernels import (
    BackendUnavailable,
    Distance,
    Entropy,
    Largest,
    LeftProduct,
    LogSumExp,
    Mass,
    Moments,
    Output,
    PooledMap,
    Received,
    ResultNorm,
    SegmentToSegment,
    attention_statistics,
    gpu,
    reference,
)

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


@pytest.fixture
def holds(conforms):
    if conforms.backend != "triton":
        pytest.skip("other backends are held to the definition elsewhere")
    return conforms


CALLS = {
    "causal": {"heads": (4, 2)},
    "all at once": {"heads": (2, 1), "sizes": (37, 37)},
    "right padding": {"heads": (2, 1)},
    "window": {"heads": (2, 2), "sizes": (40, 70), "batch": 1},
    "bool": {"heads": (2, 1), "activation": "signed"},
    "bias": {"heads": (2, 1), "activation": "sigmoid", "sizes": (20, 17)},
    "alibi": {"heads": (2, 1), "activation": "relu"},
    "sinks": {"heads": (2, 1), "dtype": torch.bfloat16, "sizes": (33, 33)},
    "left padding": {"heads": (2, 1), "dtype": torch.float16},
    "relative": {"heads": (2, 1), "sizes": (20, 37)},
}


@pytest.mark.parametrize("mask", CALLS)
def test_every_reduction(calls, holds, mask):
    given = CALLS[mask]
    sizes = given.get("sizes", (13, 13))
    masks = calls.masks(mask, given.get("batch", 2), given["heads"][0], sizes)
    if given.get("activation"):
        masks.pop("sinks", None)
    holds(calls.make(**given, **masks), block=16)


@pytest.mark.parametrize("mask", ["chunks", "rows"])
def test_ranges_and_rows_are_refused_by_name(calls, holds, mask):
    call = calls.make(**calls.masks(mask))
    with pytest.raises(BackendUnavailable, match="as ranges of keys or in rows; use 'chunked'"):
        attention_statistics(call, [Output()], backend="triton")


def every_third(query, key, tokens):
    return (query + key) % 3 == 0


def test_tiles_and_squares_of_many_sizes(calls, holds):
    """150 tokens are several tiles each way; squares below, beside and above a tile."""
    call = calls.make(batch=1, heads=(2, 1), sizes=(150, 150), widths=(32, 16), window=70)
    segment = (torch.arange(150) // 40)[None]
    masses = [Mass(f"third {n}", every_third) for n in range(9)]  # more than the bits of a byte
    asked = [Output(), Entropy(), Largest(), Moments(), Distance(), Received(), *masses]
    asked += [SegmentToSegment(segment, segment, 4, 4)]
    asked += [PooledMap(pool, f"pool {pool}") for pool in (1, 7, 48, 100)]
    holds(call, asked)


def test_many_columns_take_several_programs(calls, holds):
    call = calls.make(batch=1, heads=(2, 1), sizes=(9, 9))
    draw = torch.Generator().manual_seed(1)
    left = torch.randn(1, 2, 70, 9, generator=draw)
    labels = torch.arange(9)[None] * 8
    holds(call, [LeftProduct(left), SegmentToSegment(labels, labels, 70, 70)])


def test_observer_keeps_the_models_output_and_log_sum_exp(calls, holds):
    call, own = calls.make(batch=1, heads=(2, 1)), torch.randn(1, 2, 13, 6)
    lse = reference.log_sum_exp(call, reference.scores(call))
    asked = [Output(), ResultNorm(), LogSumExp(), Received()]
    given = {"mode": "observer", "output": own, "lse": lse}
    found = attention_statistics(call, asked, backend="triton", **given)
    assert found["output"] is own
    assert found["lse"] is lse
    torch.testing.assert_close(found["result_norm"], own.norm(dim=-1))
    exact = reference.statistics(call, [Received()])["received"]
    torch.testing.assert_close(found["received"], exact)


def test_a_stripe_of_a_predicate_is_no_larger_than_memory_allows(calls, holds, monkeypatch):
    call = calls.make(batch=1, heads=(1, 1), sizes=(64, 64))
    asked = [Mass("third", every_third)]
    need = {rows: gpu.workspace(call.shape, asked, rows) for rows in (16, 64)}
    seen = []
    original = gpu.target_tile

    def watch(attention, mass, part):
        seen.append(part.queries.stop - part.queries.start)
        return original(attention, mass, part)

    monkeypatch.setattr(gpu, "target_tile", watch)
    monkeypatch.setattr(gpu.chunked, "SPARSE_PAIRS", 1)
    holds(call, asked, memory=need[16] + 4 * 64)
    assert seen == [16] * 4
    assert need[64] > 2 * need[16]


def test_auto_leaves_the_interpreter_alone(calls, holds):
    assert attention_statistics(calls.make(), [Entropy()]).backend != "triton"


def test_the_first_of_equals_is_the_largest(calls, holds):
    """Across tiles too: every key of 70 has the same weight."""
    call = calls.make(batch=1, heads=(1, 1), sizes=(2, 70), spread=0.0, causal=False)
    found = attention_statistics(call, [Largest()], backend="triton")["largest"]
    assert found.key.tolist() == [[[0, 0]]]
