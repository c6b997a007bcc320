"""One long prompt from a file, through the command line, in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

# A short prompt first, so that what is imported, compiled and cached is there when counting starts.
SCRIPT = """
import sys
from pathlib import Path
from interp.cli.main import main

def score(context):
    run = [sys.argv[1], "--file", sys.argv[2], "--max-length", context, "--null", "none"]
    metrics = "induction,previous_token,entropy,first_token,attention_distance"
    main(["score", *run, "-m", metrics, *sys.argv[4:]], standalone_mode=False)

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

score("64")
print("\\nSECOND", flush=True)
print("SECOND", file=sys.stderr, flush=True)
Path("/proc/self/clear_refs").write_text("5")
before = peak()
score(sys.argv[3])
print("\\nGROWTH", peak() - before)
"""


@pytest.fixture(scope="module")
def long_llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights with grouped heads and room for long prompts, and a tokenizer of words."""
    folder = tmp_path_factory.mktemp("long") / "llama"
    config = LlamaConfig(
        **{"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 2},
        **{"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 16384},
        **{"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    words = {"[UNK]": 0, **{f"w{i}": 3 + i for i in range(61)}}
    core = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]").save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process its peak memory"
)
@pytest.mark.parametrize("engine", ["streamed", "fused"])
def test_a_long_prompt_is_announced_with_the_memory_it_then_takes(
    long_llama_folder, tmp_path, engine
):
    text, context = tmp_path / "long.txt", 8192
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 61, (context + 10,), generator=draw).tolist()
    text.write_text(" ".join(f"w{i}" for i in ids))
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        long_llama_folder,
        text,
        str(context),
        "--engine",
        engine,
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    told = done.stderr.split("SECOND\n")[1]
    number, unit = re.search(
        rf"llama: 1 x 8,192 tokens, {engine}: about ([\d.]+) (MiB|GiB) beside the weights", told
    ).groups()
    estimate = float(number) * {"MiB": 1, "GiB": 1024}[unit]
    table, growth = done.stdout.split("\nSECOND")[1].split("\nGROWTH ")
    measured = int(growth) / 1024
    assert 0.6 * estimate < measured < 1.6 * estimate, (measured, estimate)
    pattern = 4 * 8 * context**2 / 2**20
    assert measured < pattern / 4
    rows = json.loads(table)["rows"]
    assert len({row["metric"] for row in rows}) == 5
    assert all(0 <= row["score"] < 1 for row in rows if row["metric"] == "previous_token")
