"""The same score through every way of holding one model: time, memory, and that it is the same.

    python benchmarks/sources.py [--length 1024] [--repeats 7]

One random GPT-2 of 6 layers x 8 heads, width 512. `induction` and `entropy` of every head, two
prompts, through: a Hugging Face model; a TransformerLens bridge (the model it holds is read); a
bridge with processed weights (read rewired, as it runs); the bridge's own cache of patterns, with
the two scores computed from them, as its users do; an nnsight model here; the same with
`remote="local"`, where reductions travel in the trace. Repeats are interleaved in one process, and
times are processor time of one thread; memory is the peak over the loaded model, sampled every
2 ms in three processes per source. Writes benchmarks/sources.md and .json.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import interp
from interp.model.sources.packages import wrapped

HERE = Path(__file__).parent
METRICS = ["induction", "entropy"]
LAYERS, HEADS, WIDTH, VOCABULARY = 6, 8, 512, 1000
SOURCES = {
    "transformers": "a Hugging Face model",
    "transformer-lens": "a bridge, the model it holds",
    "transformer-lens, processed": "a bridge with processed weights, as it runs",
    "transformer-lens, its own cache": "`run_with_cache` of all patterns, scores from them",
    "nnsight": "an nnsight model, here",
    "nnsight, remote=local": "an nnsight model, reductions in the trace",
}


def build() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=LAYERS,
        n_head=HEADS,
        n_embd=WIDTH,
        vocab_size=VOCABULARY,
        n_positions=4096,
        bos_token_id=1,
        eos_token_id=2,
    )
    return GPT2LMHeadModel(config).eval()


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", eos_token="t2")


def prompts(length: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(3, VOCABULARY, (2, length // 2), generator=generator)
    return torch.cat([half, half], 1).tolist()


def by_its_own_cache(bridge: Any, ids: list[list[int]]) -> Tensor:
    """What a user of the bridge writes: cache the patterns, mask them, average."""
    tokens = torch.tensor(ids)
    with torch.no_grad():
        _, cache = bridge.run_with_cache(tokens, names_filter=lambda n: n.endswith("hook_pattern"))
    n = tokens.shape[1]
    at = torch.arange(n)
    before = torch.cat([tokens[:, :1] * 0 - 1, tokens[:, :-1]], 1)
    target = (before[:, None, :] == tokens[:, :, None]) & (at[None, None] <= at[None, :, None])
    rows = target.any(-1)
    scores = []
    for layer in range(LAYERS):
        p = cache[f"blocks.{layer}.attn.hook_pattern"].double()
        mass = (p * target[:, None]).sum(-1)
        induction = (mass * rows[:, None]).sum(-1) / rows.sum(-1)[:, None]
        entropy = -(p * p.clamp_min(1e-300).log()).sum(-1).mean(-1)
        scores.append(torch.stack([induction.mean(0), entropy.mean(0)]))
    return torch.stack(scores, 1)


def prepared(source: str, ids: list[list[int]]) -> Callable[[], Tensor]:
    """A model held that way, and the score to time: `[metric, layer, head]`."""
    module = build()
    if source.endswith("own cache"):
        bridge = wrapped("transformer-lens", module, None)
        return lambda: by_its_own_cache(bridge, ids)
    if source == "transformers":
        model = interp.load(module, name="m")
    elif source.startswith("transformer-lens"):
        bridge = wrapped("transformer-lens", module, None)
        if source.endswith("processed"):
            bridge.enable_compatibility_mode()
        model = interp.load(bridge, name="m")
    else:
        held = wrapped("nnsight", module, tokenizer())
        model = interp.load(held, name="m", remote="local" if "remote" in source else False)

    def run() -> Tensor:
        table = interp.score(model, METRICS, ids, null="none").to_pandas()
        order = ["metric", "layer", "head"]
        values = torch.tensor(table.sort_values(order).score.to_numpy())
        return values.reshape(2, LAYERS, HEADS).flip(0)  # entropy sorts before induction

    return run


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak(source: str, length: int) -> float:
    """MB over the loaded model."""
    run = prepared(source, prompts(length))
    gc.collect()
    before, most, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            most[0] = max(most[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    done.set()
    watcher.join()
    return (most[0] - before) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--memory", choices=SOURCES)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if asked.memory:
        print(peak(asked.memory, asked.length))
        return
    ids = prompts(asked.length)
    runs = {source: prepared(source, ids) for source in SOURCES}
    times: dict[str, list[float]] = {source: [] for source in SOURCES}
    found = {source: run() for source, run in runs.items()}  # and warm
    for _ in range(asked.repeats):
        for source, run in runs.items():
            start = time.process_time()
            run()
            times[source].append(time.process_time() - start)
    memory = {s: sorted(measured(s, asked.length) for _ in range(3)) for s in SOURCES}
    rows = {
        source: {
            "seconds": statistics.median(times[source]),
            "fastest": min(times[source]),
            "slowest": max(times[source]),
            "peak_mb": memory[source][1],
            "peak_mb_of_three": memory[source],
            "largest_difference": float((found[source] - found["transformers"]).abs().max()),
        }
        for source in SOURCES
    }
    write(rows, asked.length, asked.repeats)


def measured(source: str, length: int) -> float:
    done = subprocess.run(
        [sys.executable, __file__, "--memory", source, "--length", str(length)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.strip().splitlines()[-1])


def write(rows: dict[str, dict[str, Any]], length: int, repeats: int) -> None:
    base = rows["transformers"]
    about = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "length": length,
        "repeats": repeats,
        "machine": platform.machine(),
    }
    (HERE / "sources.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    lines = [
        "# The same score through every source",
        "",
        f"`induction` and `entropy` of {LAYERS * HEADS} heads, 2 prompts of {length} tokens, a "
        f"random GPT-2 ({LAYERS} layers x {HEADS} heads, width {WIDTH}), float32, one thread, "
        f"torch {torch.__version__}. Median of {repeats} interleaved repeats, processor time "
        "(fastest to slowest); peak memory over the loaded model, median of "
        "three processes per source (least to most). Made by `python benchmarks/sources.py`.",
        "",
        "| held as | seconds | ratio | peak MB | ratio | largest difference |",
        "|---|---|---|---|---|---|",
    ]
    for source, row in rows.items():
        lines.append(
            f"| {SOURCES[source]} | {row['seconds']:.2f} ({row['fastest']:.2f} to "
            f"{row['slowest']:.2f}) | {row['seconds'] / base['seconds']:.2f}x | "
            f"{row['peak_mb']:.0f} ({row['peak_mb_of_three'][0]:.0f} to "
            f"{row['peak_mb_of_three'][2]:.0f}) | {row['peak_mb'] / base['peak_mb']:.2f}x | "
            f"{row['largest_difference']:.0e} |"
        )
    lines += [
        "",
        "The last column is the largest difference of any head's score from the first row's. The "
        "first row streams over patterns under the fused kernel; a bridge's own attention forms "
        "them, and its cache keeps those of all layers.",
        "",
    ]
    (HERE / "sources.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
