"""Memory, speed, loss and retrieval of six caches on a model that retrieves, at 4k to 32k tokens.

    python benchmarks/small_caches.py [--lengths 4096 8192] [--only PLAN] [--device cuda]

Each cell is one plan at one length: prompts with a needle of a key and four values and the key as
the question, read in one call; then the values are given token by token. Every finished cell is
stored in benchmarks/small_caches.json, and a second run goes on from there; the page is
benchmarks/small_caches.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from interp import cache
from interp.cache.windows import KVHead, Window, kv_heads
from interp.heads import needle
from interp.model.inputs import cache_argument

HERE = Path(__file__).parent
MODEL = "planted:retriever"
ANSWER, STEPS, SHORT = 4, 32, 256


def per_head(model: interp.Model) -> dict[KVHead, Window]:
    """Return the plan that short prompts give: which heads keep everything is measured there."""
    made = needle.ids_instances(
        model, needles=30, lengths=(SHORT,), depths=(0.2, 0.7), answer=ANSWER, seed=9
    )
    prompts = interp.Prompts(tuple((*x.prompt, *x.answer[:-1]) for x in made))
    return cache.cache_plan(model, prompts, max_loss=0.01, recent=(4, 28), scored=ANSWER - 1).cuts()


def plans(model: interp.Model) -> dict[str, dict[KVHead, Window]]:
    """Return what each of the six caches keeps."""
    heads = kv_heads(model)
    return {
        "full": {},
        "window 512": dict.fromkeys(heads, Window(0, 512)),
        "sink 4 + window 508": dict.fromkeys(heads, Window(4, 508)),
        "sink 4 + window 60 + top 448": dict.fromkeys(heads, cache.Budget(4, 60, top=448)),
        "per head, planned at 256 tokens": per_head(model),
        "sink 4 + window 60 + 4-bit tail": dict.fromkeys(heads, cache.Budget(4, 60, bits=4)),
    }


def cell(model: interp.Model, given: dict[KVHead, Window], length: int, n: int) -> dict[str, Any]:
    """Measure one cache at one length."""
    made = needle.ids_instances(
        model, needles=n // 3, lengths=(length,), depths=(0.1, 0.5, 0.9), answer=ANSWER, seed=1
    )
    device, name = model.device, cache_argument(model.module)
    losses, right, held, rates = [], [], [], []
    for x in made:
        small = cache.small_cache(model, given)

        def read(ids: list[int], small: Any = small) -> torch.Tensor:
            more = {name: small, "use_cache": True, "logits_to_keep": 1}
            return model.module(torch.tensor([ids], device=device), **more).logits[0, -1]

        with torch.inference_mode():
            logits, each = read(list(x.prompt)), []
            held.append(small.bytes)
            for token in x.answer:
                each.append(logits.double().log_softmax(-1)[token].item())
                right.append(int(logits.argmax()) == token)
                logits = read([token])
            start = time.process_time()
            for _ in range(STEPS):
                logits = read([int(logits.argmax())])
            rates.append(STEPS / (time.process_time() - start))
        losses.append(-float(np.mean(each)))
    whole = np.array(right).reshape(len(made), ANSWER).all(1)
    return {
        "n": len(made),
        "bytes": held[0],
        "speed": float(np.median(rates)),
        "loss": float(np.mean(losses)),
        "loss_sem": float(np.std(losses, ddof=1) / len(made) ** 0.5),
        "answered": int(whole.sum()),
        "tokens_right": int(np.sum(right)),
    }


def page(found: dict[str, Any]) -> str:
    """Write the page of figures."""
    lines = [
        "# Small caches: memory, speed, loss and retrieval at 4k to 32k tokens",
        "",
        f"`{MODEL}` (2 layers, 2 key-value heads each, float32) reads a prompt of random tokens "
        f"with a needle of a key and {ANSWER} values, and is asked for the key; the values are "
        "then given one by one. Bytes are those of the tensors that the cache holds after the "
        f"prompt; speed is the median over prompts of {STEPS} further tokens per second of "
        "processor time, one prompt at a time; loss is that of the values, in nats per token, with "
        "its standard error over prompts; answered are the prompts of which every value had the "
        "highest logit. Chance is about 1 in 60 per value. Windows also apply to the prompt; "
        "caches with a tail read it in full. The full cache is the same class without budgets, "
        "and holds the bytes of a DynamicCache. A needle at depth 0.9 of 4,096 tokens lies within "
        "a window of 512.",
        "",
        "| tokens | cache | bytes | of full | tokens per CPU second | loss | answered |",
        "|---|---|---|---|---|---|---|",
    ]
    for key in sorted(found["cells"], key=lambda k: (int(k.split("|")[0]),)):
        length, plan = key.split("|")
        c, full = found["cells"][key], found["cells"].get(f"{length}|full")
        share = "" if full is None else f"{c['bytes'] / full['bytes']:.1%}"
        lines.append(
            f"| {int(length):,} | {plan} | {c['bytes']:,} | {share} | {c['speed']:.0f} | "
            f"{c['loss']:.3f} ± {c['loss_sem']:.3f} | {c['answered']} of {c['n']} |"
        )
    lines += [
        "",
        f"The plan per head keeps everything in {found['kept']}. Device {found['device']}, one "
        f"thread on a CPU; torch {found['torch']}, transformers {found['transformers']}, Python "
        f"{found['python']}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing and write both files."""
    import transformers

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096, 8192, 16384, 32000])
    parser.add_argument("--only")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--stem", default="small_caches")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = interp.load(MODEL, attention="sdpa", device=args.device)
    given = plans(model)
    cut = given["per head, planned at 256 tokens"]
    path = HERE / f"{args.stem}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cells": {}}
    found |= {
        "device": args.device if args.device == "cpu" else torch.cuda.get_device_name(),
        "kept": ", ".join(str(h) for h in kv_heads(model) if h not in cut),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    for length in args.lengths:
        for name, budgets in given.items():
            key = f"{length}|{name}"
            if key in found["cells"] or (args.only and args.only != name):
                continue
            found["cells"][key] = cell(model, budgets, length, 6 if length <= 16384 else 3)
            print(key, found["cells"][key], flush=True)
            path.write_text(json.dumps(found, indent=1) + "\n")
    path.with_suffix(".md").write_text(page(found))


if __name__ == "__main__":
    main()
