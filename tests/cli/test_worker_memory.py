"""The memory of a worker that is estimated before it starts, against that of a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from interp.heads.sweep import worker_memory
from interp.heads.sweep.worker_memory import BASE_BYTES, activation_bytes, worker_bytes
from interp.model.loading import Loading


@dataclass
class Run:
    """What the estimate reads of a request."""

    null: str = "none"
    null_draws: int = 6
    max_length: int | None = None
    prompt_file: Path | None = None
    batch_size: int = 16
    engine: str = "auto"
    loading: Loading = field(default_factory=Loading)


@pytest.fixture
def wide_llama(tmp_path) -> Path:
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=8,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "wide")
    return tmp_path / "wide"


def test_activations_grow_with_prompts_and_engine(wide_llama, tmp_path) -> None:
    short = activation_bytes(Run(), wide_llama)
    assert 0 < short < 32 * 2**20
    stored = activation_bytes(Run(max_length=2048, engine="stored"), wide_llama)
    patterns = 4 * 16 * 8 * 2048**2
    assert 3 * patterns < stored < 4 * patterns
    streamed = activation_bytes(Run(max_length=2048, engine="streamed"), wide_llama)
    assert streamed < stored / 10
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps({"tokens": [2] * n}) for n in (3, 1000)))
    run = Run(prompt_file=file, engine="stored")
    two = activation_bytes(run, wide_llama)
    assert two > 3 * 4 * 2 * 8 * 1000**2
    assert activation_bytes(replace(run, batch_size=1), wide_llama) == two / 2
    (wide_llama / "config.json").write_text("{}")
    assert activation_bytes(Run(), wide_llama) == 0


def test_random_weights_count_and_an_unknown_model_is_small(wide_llama) -> None:
    task = str(wide_llama)
    weights = (wide_llama / "model.safetensors").stat().st_size
    without, drawn = worker_bytes(Run(), task), worker_bytes(Run(null="auto"), task)
    assert drawn - without == 6 * weights
    assert worker_bytes(Run(), "org/name") == BASE_BYTES
    offloaded = Run(loading=Loading(offload=True))
    assert without - worker_bytes(offloaded, task) == weights


def test_random_weights_of_a_large_model_are_never_whole(wide_llama, monkeypatch) -> None:
    monkeypatch.setattr(worker_memory, "_KEPT_DRAWS", 1000)
    task = str(wide_llama)
    assert worker_bytes(Run(null="auto"), task) == worker_bytes(Run(), task)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_the_estimate_of_a_long_prompt_is_near_the_peak_of_a_process(wide_llama) -> None:
    """The growth over the packages is within a factor of three, of stored patterns."""
    code = (
        "import interp\n"
        "peak = lambda: int([x for x in open('/proc/self/status') if 'VmHWM' in x][0].split()[1])\n"
        f"model = interp.load({str(wide_llama)!r})\n"
        "def score(n):\n"
        "    prompts = [[2 + i % 60 for i in range(n)]] * 4\n"
        "    interp.score(model, 'entropy', prompts, null='none', engine='stored')\n"
        "score(16)\n"
        "before = peak()\n"
        "score(1024)\n"
        "print(1024 * (peak() - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    grown = int(done.stdout)
    told = activation_bytes(Run(max_length=1024, batch_size=4, engine="stored"), wide_llama)
    assert grown / 3 < told < 3 * grown
