"""What is particular to the compiled backend: its tiles, threads, products, cache and refusals.

That its numbers are right is the conformance suite's to say, which runs it beside the others.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest
import torch
from fixtures.kernels import Conformance
from numba.core.codegen import JITCodeLibrary
from sampled import sampled

from interp_kernels import (
    Attention,
    AttentionShape,
    Distance,
    Entropy,
    KeySetMass,
    Largest,
    LeftProduct,
    LogSumExp,
    Mass,
    Moments,
    Output,
    PooledMap,
    Received,
    SegmentMass,
    SegmentToSegment,
    TopK,
    attention_statistics,
    backends,
    cpu,
    cpu_blas,
    cpu_call,
    cpu_compile,
    cpu_pass,
    cpu_rows,
)
from interp_kernels.self_test import every_reduction


@pytest.fixture
def cpu_conforms() -> Conformance:
    return Conformance("cpu")


def test_it_refuses_what_it_does_not_do_and_auto_goes_on(calls):
    wide = calls.make(dtype=torch.float64)
    assert "inputs are float64; use 'chunked'" in str(backends.why_not("cpu", wide))
    assert attention_statistics(wide, [Entropy()]).backend == "chunked"
    for activation in ("softmax", "signed", "sigmoid", "relu"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            call = calls.make(dtype=dtype, activation=activation)
            assert backends.why_not("cpu", call, every_reduction(call)) is None
            assert attention_statistics(call, [Entropy()]).backend == "cpu"


@pytest.mark.parametrize("order", ["rising", "falling", "mixed"])
@pytest.mark.parametrize("activation", ["softmax", "signed", "sigmoid", "relu"])
@pytest.mark.parametrize("tile", [1, 7])
def test_peaks_that_move_from_tile_to_tile(
    calls, cpu_conforms, monkeypatch, order, activation, tile
):
    """What was summed relative to an earlier peak must follow each new one."""
    monkeypatch.setattr(cpu, "tile_size", lambda *_: (128, tile))
    call = calls.make(sizes=(29, 29), activation=activation, causal=order == "mixed")
    if order != "mixed":  # the first component alone makes the score: 4 per key
        call.q.zero_()
        call.k.zero_()
        call.q[..., 0] = 1
        steps = torch.arange(29.0) * 4 - 58
        call.k[..., 0] = steps if order == "rising" else steps.flip(0)
    cpu_conforms(call, ulps=8 + 60, block=8)


@pytest.mark.parametrize("threads", [2, 3, 50])
@pytest.mark.parametrize("heads", [(1, 1), (6, 2)])
def test_threads_change_nothing_but_the_order_of_sums(calls, monkeypatch, threads, heads):
    call = calls.make(heads=heads, sizes=(201, 201))
    left = LeftProduct(torch.randn(1, heads[0], 2, 201))
    asked = [Output(), Entropy(), Largest(), TopK(5), Received(), PooledMap(17), left]
    asked.append(Mass("common", lambda query, key, tokens: key % 2 == 0))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = attention_statistics(call, asked, backend="cpu", block=16)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    parted = attention_statistics(call, asked, backend="cpu", block=16)
    for r in asked[:4]:
        for x, y in zip(_tensors(alone[r]), _tensors(parted[r]), strict=True):
            assert torch.equal(x, y), r.name
    for r in asked[4:]:
        torch.testing.assert_close(parted[r], alone[r], msg=lambda m, r=r: f"{r.name}: {m}")


def _tensors(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("many", [0, 1000])
def test_segments_by_runs_and_by_products_agree(calls, cpu_conforms, monkeypatch, many):
    monkeypatch.setattr(cpu_call, "MANY_RUNS", many)
    for activation in ("softmax", "signed"):
        call = calls.make(sizes=(70, 70), start=(0, 9), activation=activation)
        labels = torch.randint(-1, 4, (2, 70), generator=torch.Generator().manual_seed(1))
        rows = (torch.arange(70) // 20)[None] - 1
        asked = [
            *(SegmentMass(labels, 3), SegmentToSegment(rows, labels, 2, 4), Entropy()),
            KeySetMass("gaps", (66, 0, 1, 5, 7, 6, 60, 61, 5)),
            *(KeySetMass("none", ()), Distance()),
        ]
        cpu_conforms(call, asked)


WHOLE = [
    pytest.param(activation, mask)
    for activation in ("softmax", "signed", "sigmoid", "relu")
    for mask in ("causal", "window", "left padding")
]


@pytest.mark.parametrize(("activation", "mask"), sampled(WHOLE, every=4))
def test_runs_that_hold_whole_tiles(calls, cpu_conforms, monkeypatch, activation, mask):
    """Edges on, before and after those of the tiles."""
    monkeypatch.setattr(cpu, "tile_size", lambda *_: (128, 8))
    call = calls.make(sizes=(61, 61), activation=activation, **calls.masks(mask, sizes=(61, 61)))
    edges = torch.tensor([0, 7, 8, 16, 25, 48, 57])
    labels = (torch.arange(61) >= edges[:, None]).sum(0)[None] - 1
    keys = tuple(k for k in range(61) if k not in (15, 16, 32))
    cpu_conforms(call, [SegmentMass(labels, 7), KeySetMass("most", keys)], block=8)


@pytest.mark.parametrize("at_once", [1, 70 * 20])
def test_predicates_evaluated_a_few_queries_at_a_time(calls, cpu_conforms, monkeypatch, at_once):
    monkeypatch.setattr(cpu, "TARGETS", at_once)
    monkeypatch.setattr(cpu, "SPARSE_PAIRS", 0)
    call = calls.make(sizes=(70, 70), start=(0, 9))
    same = Mass("same", lambda query, key, tokens: tokens[key] == tokens[query])
    near = Mass("near", lambda query, key, tokens: key > query - 3)
    cpu_conforms(call, [same, near, Received(), Output()], block=8)


@pytest.mark.parametrize("heads", [(4, 4), (4, 1)])
@pytest.mark.parametrize("mask", ["causal", "none", "window", "left padding", "bias"])
def test_packed_keys(calls, cpu_conforms, monkeypatch, mask, heads):
    """Packed for the blocks of queries that are left, of each head of each prompt."""
    library = cpu_blas.blas()
    packing = library.packing
    if packing is None:
        pytest.skip("this library of matrix products packs nothing")
    asked = []

    def size(*sizes: int) -> int:
        asked.append(sizes)
        return packing.size(*sizes)

    seen = library._replace(packing=packing._replace(size=size))
    monkeypatch.setattr(cpu_blas, "blas", lambda: seen)
    monkeypatch.setattr(cpu, "tile_size", lambda *_: (8, 16))
    monkeypatch.setattr(cpu_call, "AT_MOST", 5)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # all of a prompt is one task
    sizes = (203, 203)
    given = {"window": 49} if mask == "window" else calls.masks(mask, sizes=sizes)
    call = calls.make(sizes=sizes, heads=heads, **given)  # a window of 49 starts at edges of tiles
    cpu_conforms(call, block=8)
    assert set(asked) == {(16, 8, call.shape.d)}


def test_few_queries_or_keys_are_not_packed(monkeypatch):
    def tiles(query: int, key: int) -> int:
        return cpu_call.packed_tiles(AttentionShape(1, 1, 1, query, key, 8, 8), 8, 16)

    assert [tiles(95, 160), tiles(96, 160), tiles(96, 15), tiles(96, 1 << 20)] == [0, 10, 0, 32]


def test_either_product_will_do(calls, cpu_conforms, monkeypatch):
    """MKL inside torch is no promise of its wheels; scipy's is there always."""
    for library in (cpu_blas.torch_blas(), cpu_blas.scipy_blas()):
        if library is not None:
            assert cpu_blas.multiplies(library.address)
            monkeypatch.setattr(cpu_blas, "blas", lambda library=library: library)
            cpu_conforms(calls.make(sizes=(150, 150), widths=(33, 17)))


def test_without_torchs_products_scipys_are_taken(monkeypatch):
    monkeypatch.setattr(cpu_blas, "torch_blas", lambda: None)
    cpu_blas.blas.cache_clear()
    assert cpu_blas.blas().name == "scipy"
    cpu_blas.blas.cache_clear()


def test_threads_of_the_product_are_given_back():
    library = cpu_blas.torch_blas()
    if library is None:
        pytest.skip("this wheel of torch shows no products")
    a = torch.randn(700, 700)
    before = torch.get_num_threads()
    with library.one_thread():
        inside = a @ a
    assert torch.get_num_threads() == before
    torch.testing.assert_close(a @ a, inside)


def test_exponential_and_tangent():
    """Own polynomials, held to the library's in float64."""
    from numba import njit

    @njit
    def over(x):
        y = np.empty((2, x.size), np.float32)
        for i in range(x.size):
            y[0, i] = cpu_rows.exp(x[i])
            y[1, i] = cpu_rows.tanh(x[i])
        return y

    x = np.concatenate([np.linspace(-100, 0, 20_001), np.linspace(-1, 1, 2001), [-0.0, 88, -1e30]])
    x = x.astype(np.float32)
    exp, tanh = over(x).astype(np.float64)
    exact = np.exp(x.astype(np.float64))
    assert np.abs((exp - exact)[x <= 0]).max() < 6e-8
    near = np.abs(x) < 1
    assert (np.abs(exp - exact)[near] / exact[near]).max() < 1.5e-7
    assert (exp[x < -88] == 0).all()
    assert (exp[x == 0] == 1).all()
    exact = np.tanh(x.astype(np.float64))
    assert (np.abs(tanh - exact) / np.maximum(np.abs(exact), 1e-30)).max() < 3e-7


def test_moments_far_from_zero(calls, cpu_conforms):
    """A variance of scores that are all large must not cancel."""
    call = calls.make(sizes=(90, 90))
    call.k[..., 0] += 300
    call.q[..., 0] = 3
    # 320 as a score carries 320 ulps; the definition's two passes lose no more.
    cpu_conforms(call, [Moments(), Largest()], ulps=8 + 320)


def test_parts_are_compiled_once():
    """In what calls them: alone they are neither optimised nor turned into machine code."""

    @cpu_compile.inner()
    def twice(x):
        return x + x

    @numba.njit
    def whole(x):
        return 1 + twice(x)

    assert whole(3) == 7
    addresses = []
    for function in (twice, whole):
        (made,) = function.overloads.values()
        addresses.append(made.library.get_pointer_to_function(made.fndesc.llvm_func_name))
    assert [address != 0 for address in addresses] == [False, True]
    left_out = {name for name in vars(cpu_compile.PartLibrary) if "final_module" in name}
    assert len(left_out) == 2
    assert left_out <= set(dir(JITCodeLibrary)), "numba has given a step another name"


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_is_left_as_it_was(monkeypatch, before):
    seen = []

    class Dispatcher:
        _cache, overloads = None, ()

        def compile(self, signature):
            seen.append(gc.isenabled())
            raise RuntimeError("something else")

    monkeypatch.setattr(cpu_compile, "njit", lambda **options: lambda function: Dispatcher())
    was = gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        with pytest.raises(RuntimeError, match="something else"):
            cpu_pass.compile_pass(1, False, False)
        assert gc.isenabled() == before
    finally:
        (gc.enable if was else gc.disable)()
    assert seen == [False]


def test_compiled_without_a_cache_where_none_can_be_written(monkeypatch):
    asked = []

    def njit(**options):
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'attend': no locator available for file")
        raise KeyError("made without a cache")

    monkeypatch.setattr(cpu_compile, "njit", njit)
    with pytest.raises(KeyError, match="made without a cache"):
        cpu_pass.compile_pass(1, False, False)
    assert [bool(o.get("cache")) for o in asked] == [True, False]

    def broken(**options):
        raise RuntimeError("something else")

    monkeypatch.setattr(cpu_compile, "njit", broken)
    with pytest.raises(RuntimeError, match="something else"):
        cpu_pass.compile_pass(1, False, False)


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    code = (
        "from interp_kernels.cpu_pass import attend; "
        "stats = [attend(*flags).stats for flags in {}]; "
        "print(*(len(s.cache_hits) for s in stats), *(len(s.cache_misses) for s in stats))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for asked, hits_and_misses in (
        ("[(0, 0)]", "0 1"),
        ("[(0, 0)]", "1 0"),
        ("[(0, 0), (0, 1)]", "1 0 0 1"),
        ("[(0, 1), (0, 0)]", "1 1 0 0"),
    ):
        run = [sys.executable, "-c", code.format(asked)]
        done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == hits_and_misses


@pytest.mark.slow
def test_what_other_sources_left_in_the_cache_is_not_read(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for version in (1, 2):
        code = f"from interp_kernels.cpu_pass import compile_pass; compile_pass({version}, 0, 0)"
        run = [sys.executable, "-c", code]
        subprocess.run(run, env=environment, capture_output=True, check=True)
        (index,) = tmp_path.rglob(f"*{version:08x}*.nbi")
        # As if a type that the compiled function took had been renamed since.
        gone = b"cinterp_kernels.cpu_layout\nNoLonger\n."
        index.write_bytes(pickle.dumps(numba.__version__) + gone)
    subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    assert b"NoLonger" not in index.read_bytes(), "numba reads the index of the same sources"


@pytest.mark.parametrize("tile", [7, 1000])
def test_the_first_of_equal_weights_is_the_largest(calls, monkeypatch, tile):
    monkeypatch.setattr(cpu, "tile_size", lambda *_: (128, tile))
    call = calls.make(sizes=(90, 90), window=20)
    call.q.zero_()
    found = attention_statistics(call, [Largest()], backend="cpu")["largest"]
    first = (torch.arange(90) - 19).clamp(min=0)
    assert torch.equal(found.key, first.expand(2, 4, 90))


@pytest.mark.parametrize("backend", ["cpu", "chunked"])
def test_a_call_can_be_ended_in_between_and_short_tasks_change_nothing(backend, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 600, 8, generator=generator) for _ in range(3))
    call = Attention(q=q, k=k, v=v, causal=True)
    asked = [LogSumExp(), PooledMap(16)]
    whole = attention_statistics(call, asked, backend=backend, block=128)
    monkeypatch.setattr(cpu, "LONGEST", 1 << 14)
    times: list[int] = []
    parts = attention_statistics(
        call, asked, backend=backend, block=128, going_on=lambda: times.append(1)
    )
    assert len(times) >= 5
    for name in ("lse", "pooled_map"):
        torch.testing.assert_close(parts[name], whole[name], atol=1e-5, rtol=1e-5)

    class Ended(Exception):
        pass

    def end() -> None:
        times.append(1)
        if len(times) > 3:
            raise Ended

    times.clear()
    with pytest.raises(Ended):
        attention_statistics(call, asked, backend=backend, block=128, going_on=end)
    assert len(times) <= 3 + torch.get_num_threads()
