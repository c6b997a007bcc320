"""Estimate what large sweeps cost, from constants that are measured here or given by the caller.

    python -m benchmarks.sweep_cost

Writes sweep_cost.md beside this file. Bytes and seconds of the results folder are measured with
results of the real size; the price of a score over a forward is read from product.json; the
floating-point operations follow from the architecture. The speed of an accelerator is an
assumption, stated in the table, and not a measurement.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from interp.model.random_weights import DRAWS

HERE = Path(__file__).parent
SPEED = 400e12  # floating-point operations per second, of the 989e12 that an H100 has in bfloat16
DISK = 2e9  # bytes per second from which weights are read
PROMPTS, TOKENS = 16, 48
METRICS = 37  # of `interp score` by default
RESULTS = 200  # stored to measure one

LIMITS = """\
Where it would break:

- Models of 7B are bound by reading their weights, not by computing: copy them to a local disk
  first, or keep several readers (`--shard`, `--ray`). Scores of random weights are kept per
  architecture, so a thousand fine-tunes of one model pay for them once.
- 70B does not fit one accelerator of 80 GB: it needs tensor-parallel ranks (`--tp-plan auto`).
  Random weights of 70B take the same memory again; use `--null none` or `--null shuffled-tokens`.
- At 131,072 tokens the patterns of one layer cannot be stored; the engine computes every metric in
  tiles. Experiments with prompts of their own have their own lengths.
- The results are one folder with two files per model and metric. A network file system that lists
  10,000 names slowly is better served by a folder per shard and `interp results merge`.
"""


class Sweep(NamedTuple):
    """Models of one architecture and what is scored on them."""

    title: str
    models: int
    parameters: float
    layers: int
    heads: int
    width: int
    prompts: int
    tokens: int
    forwards: int  # per model: the model itself, shuffled tokens, random weights


SWEEPS = (
    Sweep(
        "1,000 models of 7B, default prompts, nulls",
        1000,
        7e9,
        32,
        32,
        4096,
        PROMPTS,
        TOKENS,
        2 + DRAWS,
    ),
    Sweep(
        "1,000 models of 7B, default prompts, `--null none`",
        1000,
        7e9,
        32,
        32,
        4096,
        PROMPTS,
        TOKENS,
        1,
    ),
    Sweep(
        "one model of 70B, one prompt of 131,072 tokens, `--null none`",
        1,
        70e9,
        80,
        64,
        8192,
        1,
        131_072,
        1,
    ),
)


def operations(sweep: Sweep) -> float:
    """Floating-point operations of one forward: weights, and causal attention."""
    each = 2 * sweep.parameters * sweep.tokens
    return sweep.prompts * (each + 2 * sweep.layers * sweep.width * sweep.tokens**2)


def stored(sweep: Sweep) -> dict[str, float]:
    """Measure bytes and seconds of one stored result with as many heads and prompts."""
    from interp.core.clusters import PromptValues
    from interp.core.store import Key, Store
    from interp.core.table import HeadTable

    rng = np.random.default_rng(0)
    shape = (sweep.layers, sweep.heads)
    columns = {name: rng.random(shape) for name in ("sem", "null", "null_sem")}
    made = {"versions": {"interp": "0"}, "seed": 0}
    table = HeadTable.from_scores(
        model="model",
        metric="metric",
        score=rng.random(shape),
        provenance=made,
        n=sweep.prompts,
        unit="share",
        **columns,
    )
    sites = {
        ("decoder", layer): rng.random((sweep.prompts, sweep.heads)).astype(np.float32)
        for layer in range(sweep.layers)
    }
    ids = tuple(f"{i:016x}" for i in range(sweep.prompts))
    table = table.with_prompt_values({("model", "metric"): PromptValues(sites, ids=ids)})
    seconds: dict[str, list[float]] = {"write": [], "find": []}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(RESULTS):
            key = Key("model", f"{i:032x}", "metric", {"seed": i})
            store = Store(folder)  # a process that knows nothing of the folder yet
            begin = time.perf_counter()
            store.write(key, table)
            middle = time.perf_counter()
            store.find(key)
            seconds["write"].append(middle - begin)
            seconds["find"].append(time.perf_counter() - middle)
        size = sum(path.stat().st_size for path in Path(folder).glob("*.*.*.parquet"))
        store = Store(folder)
        begin = time.perf_counter()
        store.paths()
        listed = (time.perf_counter() - begin) / RESULTS
    found = {what: statistics.median(each) for what, each in seconds.items()}
    return found | {"bytes": size / RESULTS, "listed": listed}


def cost(sweep: Sweep, price: float) -> dict[str, float]:
    """Return the estimate of one sweep.

    Args:
        sweep: what is scored.
        price: time of a score over a plain forward.
    """
    each = stored(sweep)
    results = sweep.models * METRICS
    computing = sweep.models * sweep.forwards * price * operations(sweep) / SPEED
    return {
        "operations of a forward": operations(sweep),
        "hours of computing": computing / 3600,
        "hours of reading weights": sweep.models * 2 * sweep.parameters / DISK / 3600,
        "hours of writing results": results * (each["write"] + each["find"]) / 3600,
        "GiB of weights in memory": 2 * sweep.parameters / 2**30,
        # queries, keys, values, output and input of one layer in bfloat16
        "GiB of one layer's tensors": 5 * 2 * sweep.width * sweep.tokens / 2**30,
        "GiB of one layer's patterns, not stored": (
            2 * sweep.heads * sweep.tokens**2 / 2**30 * sweep.prompts
        ),
        "files of results": 2 * results,
        "GiB of results": results * each["bytes"] / 2**30,
        "seconds to list the results": results * each["listed"],
    }


def main() -> None:
    """Measure, print and write."""
    rows = json.loads((HERE / "product.json").read_text())["rows"]
    price = {row["case"]: row["clock"][0] for row in rows if "clock" in row}
    at = {PROMPTS: price["gpt2 score 16x48"], 1: price["gpt2 score 4096"]}
    found = {sweep.title: cost(sweep, at[sweep.prompts]) for sweep in SWEEPS}
    prompts = f"{at[PROMPTS]:.2f} for {PROMPTS} prompts of {TOKENS} tokens"
    lines = [
        "# What a large sweep would cost",
        "",
        "Estimated by `python -m benchmarks.sweep_cost`.",
        "",
        f"{METRICS} metrics. Measured here: the price of a score over a plain forward ({prompts}, "
        f"{at[1]:.2f} for one of 4,096, on a CPU, from product.json), and bytes and seconds of "
        f"stored results of the real size. Assumed: {SPEED / 1e12:g}e12 operations per second for "
        f"an accelerator, and weights in bfloat16 read at {DISK / 1e9:g} GB/s. Not in it: "
        "experiments that generate text, and drawing random weights, which takes about the time of "
        "reading them.",
        "",
        "| | " + " | ".join(found) + " |",
        "|---|" + "---|" * len(found),
    ]
    for name in next(iter(found.values())):
        cells = " | ".join(f"{one[name]:.3g}" for one in found.values())
        lines.append(f"| {name} | {cells} |")
    text = "\n".join([*lines, "", LIMITS])
    (HERE / "sweep_cost.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
