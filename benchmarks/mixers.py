"""Peak memory and time of scores of maps at long context: Mamba-2, Mamba-1 and RWKV-4.

Each point runs in a process of its own. The peak is the largest resident set above the loaded
model, once for the model's own forward and once for the score, so that what interp adds can be
read off. Writes mixers.json and mixers.md beside this file. One thread; random weights.

    python benchmarks/mixers.py [--max-length 16384]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LENGTHS = {  # channels have a map each, so those families are measured on shorter prompts
    "mamba2": (4096, 8192, 16384),
    "mamba": (1024, 4096, 16384),
    "rwkv": (1024, 2048, 4096),
}
METRICS = ("previous_token", "entropy")


def built(family: str):
    """Return one layer (RWKV: two) of a family, with few channels: cost is linear in them."""
    import torch
    import transformers

    torch.manual_seed(0)
    common = {"vocab_size": 256, "num_hidden_layers": 1}
    if family == "mamba2":
        config = transformers.Mamba2Config(
            **common,
            hidden_size=64,
            state_size=64,
            num_heads=2,
            head_dim=64,
            n_groups=1,
            chunk_size=64,
        )
        return transformers.Mamba2ForCausalLM(config).eval()
    if family == "mamba":
        config = transformers.MambaConfig(**common, hidden_size=64, state_size=16)
        return transformers.MambaForCausalLM(config).eval()
    # its initialisation divides by the number of layers less one
    common["num_hidden_layers"] = 2
    config = transformers.RwkvConfig(**common, hidden_size=128, context_length=16384)
    return transformers.RwkvForCausalLM(config).eval()


def peak() -> int:
    """Return the largest resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def point(family: str, length: int, what: str) -> dict[str, float]:
    """Run the model, or score it, and return seconds and bytes above the loaded model."""
    import torch

    import interp

    model = interp.load(built(family), name=family)
    ids = torch.randint(5, 250, (1, length), generator=torch.Generator().manual_seed(0))
    interp.score(model, list(METRICS), ids[:, :64].tolist(), null="none")  # imports and caches
    before, start = peak(), time.perf_counter()
    if what == "forward":
        with torch.no_grad():
            model.run(ids.tolist())
    else:
        interp.score(model, list(METRICS), ids.tolist(), null="none", engine="streamed")
    return {"seconds": time.perf_counter() - start, "bytes": peak() - before}


def main() -> None:
    """Measure every point, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-length", type=int, default=16384)
    parser.add_argument("--point", nargs=3, metavar=("FAMILY", "LENGTH", "WHAT"))
    asked = parser.parse_args()
    if asked.point:
        family, length, what = asked.point
        print(json.dumps(point(family, int(length), what)))
        return
    found = []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for family, lengths in LENGTHS.items():
        for length in (n for n in lengths if n <= asked.max_length):
            row: dict[str, object] = {"family": family, "tokens": length}
            for what in ("forward", "score"):
                command = [sys.executable, __file__, "--point", family, str(length), what]
                out = subprocess.run(
                    command, check=True, capture_output=True, text=True, env=environment
                )
                got = json.loads(out.stdout.splitlines()[-1])
                row[f"{what}_seconds"] = round(got["seconds"], 1)
                row[f"{what}_mib"] = round(got["bytes"] / 2**20)
            found.append(row)
            print(row, flush=True)
            (HERE / "mixers.json").write_text(json.dumps(found, indent=1) + "\n")
    lines = [
        "# Maps that are not one softmax, at long context",
        "",
        "One layer (RWKV: two), one prompt, one CPU thread, float32; previous_token and entropy.",
        "Peak resident memory above the loaded model, in MiB, of the model's own forward and of",
        "the score, which contains one forward. `python benchmarks/mixers.py` repeats it.",
        "",
        "| family | tokens | forward, MiB | score, MiB | forward, s | score, s |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['family']} | {r['tokens']:,} | {r['forward_mib']:,} | {r['score_mib']:,} | "
        f"{r['forward_seconds']} | {r['score_seconds']} |"
        for r in found
    ]
    (HERE / "mixers.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
