"""Memory and processor time of models from 3M to 4B weights, over their plain forward pass.

    python benchmarks/size.py --folder DIR [--sizes 3M,160M] [--tokens 48,1024] [--threads 1]

Checkpoints of random weights are written layer by layer to `--folder` and deleted afterwards. Each
row is measured in a process of its own and kept in `size.jsonl` beside this script, so that a run
goes on where it stopped; `size.md` is made from it.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROWS, PAGE = HERE / "size.jsonl", HERE / "size.md"
# width, layers, query heads, key-value heads, MLP, tokens of the vocabulary, data type
SIZES: dict[str, tuple[int, int, int, int, int, int, str]] = {
    "3M": (128, 4, 4, 4, 512, 8192, "float32"),
    "30M": (384, 8, 6, 6, 1536, 32000, "float32"),
    "160M": (768, 14, 12, 12, 3072, 32000, "float32"),
    "1.1B": (2048, 22, 32, 4, 5632, 32000, "bfloat16"),
    "4B": (3072, 34, 24, 8, 8960, 32000, "bfloat16"),
}
MODES = ("forward", "load", "score", "score with nulls", "profile", "ablate", "circuit")
FEWEST = 8  # documents of a profile
METRICS = ("induction", "entropy", "previous_token")
BATCH = {48: 16, 1024: 1}


def config_of(size: str) -> Any:
    """Return the config of a size."""
    from transformers import LlamaConfig

    width, layers, heads, kv_heads, inner, vocabulary, dtype = SIZES[size]
    return LlamaConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=inner,
        vocab_size=vocabulary,
        max_position_embeddings=4096,
        dtype=dtype,
        architectures=["LlamaForCausalLM"],
    )


def write(size: str, folder: Path) -> None:
    """Write a checkpoint of random weights, one file per layer."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaForCausalLM

    config = config_of(size)
    folder.mkdir(parents=True)
    config.save_pretrained(folder)
    with torch.device("meta"):
        module = LlamaForCausalLM(config)
    dtype, generator = getattr(torch, SIZES[size][-1]), torch.Generator().manual_seed(0)
    files: dict[str, dict[str, Any]] = {}
    for name, parameter in module.named_parameters():
        layer = name.split(".")[2] if ".layers." in name else name
        files.setdefault(f"{layer}.safetensors", {})[name] = parameter
    index = {name: file for file, own in files.items() for name in own}
    for file, own in files.items():
        drawn = {
            name: torch.ones(p.shape, dtype=dtype)
            if p.dim() == 1
            else torch.empty(p.shape, dtype=dtype).normal_(0, 0.02, generator=generator)
            for name, p in own.items()
        }
        save_file(drawn, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )


def peak() -> float:
    """Return the largest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(folder: Path, mode: str, tokens: int, offload: bool, threads: int) -> dict[str, Any]:
    """Measure one row in this process."""
    import torch

    import interp

    torch.set_num_threads(threads)
    begin, packages = time.process_time(), peak()
    model = interp.load(folder, offload=offload, check=mode == "load")
    row: dict[str, Any] = {"load": time.process_time() - begin, "packages": packages}
    generator = torch.Generator().manual_seed(1)
    shape = (BATCH[tokens], tokens)
    ids = torch.randint(0, model.d_vocab, shape, generator=generator).tolist()
    times = []
    for _ in range(2 if mode == "forward" else 0):
        begin = time.process_time()
        model.read(ids, lambda *_: None, last=1)
        times.append(time.process_time() - begin)
    if mode.startswith("score"):
        begin, null = time.process_time(), "none" if mode == "score" else "random-init"
        interp.score(model, METRICS, ids, null=null, null_cache=False)
        times.append(time.process_time() - begin)
    if mode in ("profile", "ablate", "circuit"):
        begin = time.process_time()
        row["prompts"] = analyse(model, mode, ids)
        times.append(time.process_time() - begin)
    row["processor"] = min(times) if times else row["load"]
    return row | {"peak": peak()}


def analyse(model: Any, mode: str, ids: list[list[int]]) -> int:
    """Run one analysis, and return how many prompts it read.

    The circuit's method is called without the check that the model does the task, which random
    weights do not.
    """
    import torch

    from interp.causal import logit_difference, loss
    from interp.causal.gradient import gradient_scores
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.find import find_method
    from interp.core.prompts import Prompts
    from interp.profiles.run import profile

    generator = torch.Generator().manual_seed(2)
    other = torch.randint(
        0, model.d_vocab, (max(FEWEST, len(ids)), len(ids[0])), generator=generator
    ).tolist()
    if mode == "profile":
        profile(
            model, other, n_documents=len(other), n_queries=16, max_length=len(ids[0]), n_ablated=0
        )
        return len(other)
    if mode == "ablate":
        gradient_scores(model, loss(model, ids), null="none", check=False)
        return len(ids)
    task = logit_difference(model, ids, 11, 13)
    corrupted = Prompts(tuple(map(tuple, other[: len(ids)])))
    found = find_method("attribution_patching")[0]
    found(model, ContrastTask(task.with_corrupted(corrupted, model)), "head")
    return 2 * len(ids)


def page(rows: list[dict[str, Any]], threads: int) -> str:
    """Return the page of all rows, by size and prompts."""
    sizes = list(SIZES)
    rows = sorted(
        rows,
        key=lambda r: (sizes.index(r["size"]), r["tokens"], MODES.index(r["mode"]), r["offload"]),
    )
    lines = [
        "# Models by size",
        "",
        "Random Llama weights on a CPU; made by `benchmarks/size.py`, one process per row, with "
        f"{threads} thread. Peak is the resident memory of the process in MiB, of which the "
        "packages take about "
        f"{min((r['packages'] for r in rows), default=0):.0f}; processor time is in seconds "
        "(one run; the forward pass the shorter of two), and beside it in plain forward passes of "
        "the same prompts. `load` includes the self-check, the other rows do not. `score` is three "
        "metrics (induction, entropy, previous_token) with hashing of the weights; `score with "
        "nulls` also scores six draws of random weights; `profile` describes every head on 16 "
        "queries of each document, with the effects by gradient; `ablate` is the gradient of the "
        "loss by the gates of all heads; `circuit` is attribution patching of nodes on as many "
        "pairs. Prompts: 16 x 48 tokens, or 1 x 1,024 (8 documents of a profile); forwards are of "
        "the prompts that were read.",
        "",
        "| weights | GiB | mode | tokens | peak | s | forwards |",
        "|---|---|---|---|---|---|---|",
    ]
    forward = {
        (r["size"], r["tokens"]): r["processor"]
        for r in rows
        if r["mode"] == "forward" and not r["offload"]
    }
    for r in rows:
        mode = f"{r['mode']}, offload" if r["offload"] else r["mode"]
        once = forward.get((r["size"], r["tokens"]))
        once = None if once is None else once * r.get("prompts", 0) / BATCH[r["tokens"]] or once
        ratio = "" if once is None else f"{r['processor'] / once:.1f}"
        lines.append(
            f"| {r['size']} | {r['gib']:.2f} | {mode} | {r['tokens']:,} | "
            f"{r['peak']:,.0f} | {r['processor']:.3g} | {ratio} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure the rows that are missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "sizes")
    parser.add_argument("--sizes", default="3M,30M,160M,1.1B")
    parser.add_argument("--tokens", default="48,1024")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--offload-only", action="store_true", help="for sizes beyond memory")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        mode, tokens, offload = json.loads(given.row)
        print(json.dumps(measure(given.folder, mode, tokens, offload, given.threads)))
        return
    rows = [json.loads(x) for x in ROWS.read_text().splitlines()] if ROWS.exists() else []
    done = {(r["size"], r["mode"], r["tokens"], r["offload"]) for r in rows}
    for size in given.sizes.split(","):
        folder = given.folder / size
        todo = [
            (m, int(t), o)
            for t in given.tokens.split(",")
            for m in given.modes.split(",")
            for o in ((True,) if given.offload_only else (False, True))
            if (size, m, int(t), o) not in done
        ]
        if not todo:
            continue
        try:
            if not folder.exists():
                write(size, folder)
            gib = sum(f.stat().st_size for f in folder.glob("*.safetensors")) / 2**30
            for mode, tokens, offload in todo:
                row = json.dumps([mode, tokens, offload])
                command = [
                    sys.executable,
                    __file__,
                    "--folder",
                    str(folder),
                    "--row",
                    row,
                    "--threads",
                    str(given.threads),
                ]
                told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                about = {"size": size, "gib": gib, "mode": mode, "tokens": tokens}
                found = about | {"offload": offload} | json.loads(told.splitlines()[-1])
                rows.append(found)
                with ROWS.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                print(found, flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    PAGE.write_text(page(rows, given.threads))


if __name__ == "__main__":
    main()
