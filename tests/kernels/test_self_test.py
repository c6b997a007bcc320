"""The comparison of kernels that a user runs on a card, and what is chosen by its verdict."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from interp_kernels import (
    AttentionShape,
    Entropy,
    attention_statistics,
    backends,
    gpu,
    verdicts,
)
from interp_kernels import self_test as module
from interp_kernels.self_test import Compared, SelfTest, self_test
from interp_kernels.verdicts import Width, keep, verdict_folder, why_untrusted

WIDTH = Width(4, 2, 8, 6, torch.float32)
CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Calls that the interpreter of Triton computes in seconds, and one repetition of each time."""
    monkeypatch.setattr(module, "SIZES", (17,) if gpu.interpreted() else (33, 65))
    monkeypatch.setattr(module, "TIMED", 16)
    monkeypatch.setattr(module, "REPEATS", 1)


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A card that torch reports, and an empty folder of verdicts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(gpu, "missing", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Card A")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    verdicts._kept.cache_clear()
    yield
    verdicts._kept.cache_clear()


def call_there(width: Width = WIDTH):
    """What "auto" looks at in a call on a card."""
    shape = AttentionShape(1, width.head, width.kv_head, 9, 9, width.d, width.d_v)
    q = SimpleNamespace(device=CUDA, dtype=width.dtype)
    return SimpleNamespace(
        q=q, shape=shape, activation="softmax", ranges=None, bias=None, relative_bias=None
    )


def verdict(error: float, backend: str = "triton", width: Width = WIDTH) -> SelfTest:
    return SelfTest(width, "cuda:0", (Compared(backend, "entropy", "causal", error, 1e-6),), {})


def test_every_backend_that_runs_is_compared(backend):
    found = self_test(WIDTH, "cpu")
    mine = [row for row in found.compared if row.backend == backend]
    assert found.passed(backend), [row for row in mine if not row.passed]
    assert {row.result for row in mine} >= {"output", "entropy", "received", "gradient of q"}
    assert all(row.error > 0 for row in mine if row.result == "entropy")
    assert found.seconds[backend] > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_are_compared_too(backend, dtype):
    found = self_test(Width(2, 2, 8, 8, dtype), "cpu")
    of_it = [row for row in found.compared if row.backend == backend]
    if backend == "chunked" or (dtype != torch.float64):
        assert found.passed(backend), [row for row in of_it if not row.passed]
    else:
        assert not of_it, "it refuses float64, so nothing was compared"
        assert not found.passed(backend)


def test_a_wrong_result_is_named(monkeypatch):
    right = module.attention_statistics

    def wrong(call, asked, **options):
        found = right(call, asked, **options)
        if options["backend"] == "chunked" and call.softcap and "entropy" in found:
            dict.__setitem__(found, "entropy", found["entropy"] + 1e-3)
        return found

    monkeypatch.setattr(module, "attention_statistics", wrong)
    found = self_test(WIDTH, "cpu")
    [row] = [row for row in found.compared if not row.passed]
    assert (row.backend, row.result) == ("chunked", "entropy")
    assert "soft-cap" in row.call
    assert row.error == pytest.approx(1e-3, rel=1e-2)
    assert not found.passed("chunked")


def test_nan_and_an_exception_are_failures(monkeypatch):
    right = module.attention_statistics

    def wrong(call, asked, **options):
        if call.sinks is not None:
            raise RuntimeError("CUDA error: an illegal memory access\nmore lines")
        found = right(call, asked, **options)
        if "received" in found:
            dict.__setitem__(found, "received", found["received"] * float("nan"))
        return found

    monkeypatch.setattr(module, "attention_statistics", wrong)
    rows = [row for row in self_test(WIDTH, "cpu").compared if not row.passed]
    notes = {row.result: row.note for row in rows if row.backend == "chunked"}
    assert notes == {
        "received": "",
        "all results": "RuntimeError: CUDA error: an illegal memory access",
    }


def test_auto_uses_a_card_only_after_its_kernels_passed_there(card):
    asked = [Entropy()]
    with pytest.warns(UserWarning, match=r"were not compared on this card \(Card A, capability 9"):
        assert backends.choose("auto", call_there(), asked) == "chunked"
    assert backends.choose("triton", call_there(), asked) == "triton", "if it is named"
    keep(verdict(1e-7))
    assert backends.choose("auto", call_there(), asked) == "triton"
    other = Width(4, 2, 16, 6, torch.float32)
    with pytest.warns(UserWarning, match="16 and 6 wide"):
        assert backends.choose("auto", call_there(other), asked) == "chunked"
    keep(verdict(1e-3))
    with pytest.warns(UserWarning, match="failed their comparison"):
        assert backends.choose("auto", call_there(), asked) == "chunked"


def test_a_verdict_is_of_one_card_and_one_version(card, monkeypatch):
    keep(verdict(1e-7))
    assert why_untrusted(CUDA, WIDTH) is None
    keep(verdict(1e-7, width=Width(2, 2, 4, 4, torch.bfloat16)))
    assert why_untrusted(CUDA, WIDTH) is None, "both are kept"
    for patched in (
        (torch.cuda, "get_device_name", lambda device: "Card B"),
        (torch, "__version__", "99.0"),
        (verdicts, "KERNELS", ("api.py",)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(*patched)
            verdicts._kept.cache_clear()
            assert "were not compared" in why_untrusted(CUDA, WIDTH)
    verdicts._kept.cache_clear()
    assert why_untrusted(CUDA, WIDTH) is None


@pytest.mark.parametrize("content", ["{", "[]", '{"passed": 3}', '{"passed": {"8 6": "yes"}}'])
def test_a_damaged_file_is_no_verdict(card, content):
    path = keep(verdict(1e-7))
    if content.startswith('{"'):
        content = json.dumps({**json.loads(path.read_text()), **json.loads(content)})
    path.write_text(content)
    verdicts._kept.cache_clear()
    assert why_untrusted(CUDA, WIDTH) is not None
    keep(verdict(1e-7))
    assert why_untrusted(CUDA, WIDTH) is None
    assert [p.suffix for p in verdict_folder().iterdir()] == [".json"]


def test_nothing_passed_where_nothing_was_compared(card):
    keep(SelfTest(WIDTH, "cuda:0", (), {}))
    assert "failed" in why_untrusted(CUDA, WIDTH)


def test_the_backend_on_the_cpu_needs_no_verdict(calls, card):
    assert attention_statistics(calls.make(), [Entropy()]).backend in ("cpu", "chunked")
