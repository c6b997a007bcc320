"""Rollout without patterns: the stored numbers, in memory linear in the length."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from attribution.graphs import example_of, last_row, tiny_llama

import interp
from interp.attribution import Example
from interp.attribution.graph import streamed_rollout
from interp.attribution.methods import rollout
from interp.core.errors import OptionError
from interp.model.calls.call import ComputedCall


@pytest.mark.parametrize(
    ("family", "normalise"),
    [
        *(("llama", how) for how in ("none", "rows", "sum")),
        *((x, "rows") for x in ("bert", "gpt2", "mistral_sliding", "gemma2", "gpt_oss")),
        ("modernbert", "sum"),
    ],
)
def test_streamed_is_stored(family: str, normalise: str) -> None:
    example, _ = example_of(family, position=-2)
    streamed = rollout.of(example, engine="streamed", normalise=normalise)
    stored = rollout.of(example, engine="stored", normalise=normalise)
    assert (streamed.notes["engine"], stored.notes["engine"]) == ("streamed", "stored")
    np.testing.assert_allclose(streamed.scores, stored.scores, atol=2e-6)
    for key in {"row sums"} & {*stored.notes, *streamed.notes}:
        np.testing.assert_allclose(streamed.notes[key], stored.notes[key], atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"residual": 0.0},
        {"residual": 0.9},
        {"start_layer": 1},
        {"last_layer": 0},
        {"heads": "L0H1+L1H0"},
        {"heads": "L1H2"},
        {"heads": [3, 1, 0, 0, 0, 1]},
    ],
)
def test_every_option_streams(options: dict) -> None:
    example, _ = example_of("llama")
    stored = rollout.of(example, engine="stored", **options).scores
    streamed = rollout.of(example, engine="streamed", **options).scores
    np.testing.assert_allclose(streamed, stored, atol=2e-6)
    assert np.abs(stored - rollout.of(example, engine="stored").scores).max() > 1e-3


def test_an_encoder_of_an_encoder_decoder_streams() -> None:
    example, _ = example_of("t5")
    stored = rollout.of(example, stack="encoder", engine="stored").scores
    streamed = rollout.of(example, stack="encoder", engine="streamed").scores
    np.testing.assert_allclose(streamed, stored, atol=2e-6)


def test_a_thousand_tokens_stream_to_float32_rounding() -> None:
    model = interp.load(tiny_llama(), name="tiny")
    ids = torch.randint(64, (1, 1024), generator=torch.Generator().manual_seed(0))
    example = Example(model, {"input_ids": ids}, last_row())
    streamed = rollout.of(example, engine="streamed").scores
    stored = rollout.of(example, engine="stored").scores
    np.testing.assert_allclose(streamed, stored, rtol=2e-5, atol=1e-8)
    assert stored.sum() == pytest.approx(1, abs=1e-5)
    assert np.sort(stored)[-2] > 5 / 1024  # not the uniform row that any engine would get right


def test_streaming_forms_no_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a pattern was formed")

    example, _ = example_of("llama")
    monkeypatch.setattr(ComputedCall, "scores", never)
    rollout.of(example, engine="streamed")
    with pytest.raises(AssertionError, match="a pattern was formed"):
        rollout.of(example, engine="stored")


def test_an_engine_asked_for_is_never_swapped() -> None:
    example, _ = example_of("llama")
    for options, said in (
        ({"heads": "max"}, "the max over heads is not a weighted sum"),
        ({"full": True}, "a matrix as large as a pattern"),
    ):
        with pytest.raises(OptionError, match=said):
            rollout.of(example, engine="streamed", **options)
    with pytest.raises(OptionError, match="known: auto, stored, streamed"):
        rollout.of(example, engine="fused")
    both, _ = example_of("bart")
    with pytest.raises(OptionError, match="encoder and decoder together"):
        rollout.of(both, engine="streamed")
    own_code, _ = example_of("deberta")
    with pytest.raises(OptionError, match="in its own code"):
        rollout.of(own_code, engine="streamed")


def test_auto_streams_once_patterns_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def engine(**options: object) -> str:
        return rollout.of(example_of("llama")[0], **options).notes["engine"]

    assert engine() == "stored"
    monkeypatch.setattr(streamed_rollout, "STORED_BYTES", 0)
    assert engine() == "streamed"
    assert engine(heads="min") == "stored"
    assert engine(full=True) == "stored"
    kept, _ = example_of("llama")
    kept.patterns()
    assert rollout.of(kept).notes["engine"] == "stored"  # the patterns are there already


GROWTH = """
import sys
from pathlib import Path
import torch
from attribution.graphs import last_row, tiny_llama
import interp
from interp.attribution import Example
from interp.attribution.methods import rollout

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

def run(model, n):
    ids = torch.randint(64, (1, n), generator=torch.Generator().manual_seed(0))
    return rollout.of(Example(model, {"input_ids": ids}, last_row()), engine="streamed")

model = interp.load(tiny_llama(), name="tiny")
run(model, 64)
Path("/proc/self/clear_refs").write_text("5")
before = peak()
found = run(model, int(sys.argv[1]))
print((peak() - before) / 1024, found.scores.sum())
"""


def growth(n: int) -> float:
    """MiB that a rollout of n tokens adds to the peak of a process of its own."""
    found = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(n)],
        capture_output=True,
        text=True,
        check=False,
        env=found,
    )
    assert done.returncode == 0, done.stderr
    size, total = map(float, done.stdout.split())
    assert total == pytest.approx(1, abs=1e-4)
    return size


@pytest.mark.slow
def test_memory_is_linear_at_eight_thousand_tokens() -> None:
    two, eight = growth(2048), growth(8192)
    assert eight < 8 * two  # 4 if linear, give or take the allocator; 16 if quadratic
    assert eight < 64  # one head's pattern alone is 256 MiB
