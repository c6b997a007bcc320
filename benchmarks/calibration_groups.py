"""How often metrics of a group call heads of random models special, and what a group costs.

    python benchmarks/calibration_groups.py GROUP [--models 50] [--draws 6] [--keep FOLDER]
    python benchmarks/calibration_groups.py GROUP --only SHAPE --keep FOLDER     score one shape

GROUP is geometry, categories or cache. False findings: as benchmarks/calibration.py, for the group
that is scored by `-m GROUP`; models of metrics of texts have the tokenizer of a bundled model.
Cost, for geometry: seconds of the whole group, and of each metric alone, over a plain forward pass
of the same prompts; passes alternate, and the ratio is that of the medians. The experiments of the
other groups make their own prompts. Writes benchmarks/calibration_GROUP.json and .md.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import statistics
import time
from functools import cache
from pathlib import Path
from typing import Any

import calibration
import torch

import interp
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.heads.declaration import bound
from interp.heads.measuring import measure_layers, why_unmeasurable

HERE = Path(__file__).parent
ROUNDS = 3
SIZES = {  # hidden size, layers, heads, key-value heads, prompts, tokens
    "small": (64, 2, 8, 2, 16, 24),
    "larger": (128, 4, 8, 8, 4, 64),
}


@cache
def bundled_tokenizer() -> Any:
    return interp.load("bundled:induction").tokenizer


def random_reader(shape: str, number: int) -> interp.Model:
    """A random model of longer texts, with the tokenizer of a bundled model."""
    tokenizer = bundled_tokenizer()
    module = calibration.module_of(shape, 1000 + number, len(tokenizer), 1024)
    return interp.load(module, name=shape, tokenizer=tokenizer)


GROUPS = {
    "geometry": calibration.random_model,
    "categories": random_reader,
    "cache": calibration.random_model,
}


def model_of(size: str) -> tuple[interp.Model, Prompts]:
    """A Llama with random weights and random prompts of one length."""
    import transformers as hf

    hidden, layers, heads, kv_heads, n, tokens = SIZES[size]
    config = hf.LlamaConfig(
        vocab_size=1000,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        bos_token_id=0,
        eos_token_id=1,
    )
    torch.manual_seed(0)
    model = interp.load(hf.LlamaForCausalLM(config).eval(), name=size)
    ids = torch.randint(2, 1000, (n, tokens), generator=torch.Generator().manual_seed(1))
    return model, Prompts(tuple(tuple(row) for row in ids.tolist()))


def cost(size: str) -> dict[str, Any]:
    """Ratios of the time of each measure, and of all together, to a plain forward pass."""
    model, prompts = model_of(size)
    names = [n for n, e in METRICS.items() if e.group == "geometry" and e.kind == "measurement"]
    bounds = [b for b in map(bound, names) if why_unmeasurable(model, b) is None]
    given = model.inputs(prompts)
    runs: dict[str, Any] = {
        "plain forward": lambda: plain(model, given),
        "all measures": lambda: measure_layers(model, prompts, bounds, 16, "stored"),
    }
    for b in bounds:
        runs[b.label] = lambda b=b: measure_layers(model, prompts, [b], 16, "stored")
    experiments = [
        n for n, e in METRICS.items() if e.group == "geometry" and e.kind == "experiment"
    ]
    for name in experiments:
        runs[name] = lambda name=name: bound(name).experiment(model, 0, calibration.silent)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for around in range(ROUNDS + 1):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            if around:  # the first round warms up
                seconds[name].append(time.perf_counter() - began)
    median = {name: statistics.median(x) for name, x in seconds.items()}
    base = median["plain forward"]
    return {
        "size": size,
        "shape": SIZES[size],
        "forward_seconds": base,
        "ratio": {name: round(x / base, 2) for name, x in median.items()},
        "spread": {
            name: [round(min(x) / base, 2), round(max(x) / base, 2)] for name, x in seconds.items()
        },
    }


def plain(model: interp.Model, given: dict[str, Any]) -> None:
    """Run the model's own forward pass."""
    with torch.no_grad():
        model.module(**given)


def page(group: str, found: dict[str, Any]) -> str:
    """Format the results as Markdown."""
    (of,) = found["familywise"]
    low, high = calibration.between(of["p_alone"], of["models"])
    shapes = ", ".join(f"{k} {v}" for k, v in of["by_shape"].items())
    out = [
        f"# Metrics of {group} on random weights{', and their cost' if found['cost'] else ''}",
        "",
        "## False findings",
        "",
        f"{of['models']} randomly initialised models of {calibration.TOLD}, each held against"
        f" {found['draws']} other draws of its initialisation, scored by `-m {group}`. A head is"
        " called special where p is below 5 % over all heads and metrics (Bonferroni) and the"
        " difference is large. In brackets the exact binomial 95 % interval.",
        "",
        f"- models with any head called special: {of['claimed']}"
        f" ({of['claimed'] / of['models']:.1%}) [{of['low']:.1%}, {of['high']:.1%}]; {shapes}",
        f"- models with any p below the level, whatever the size: {of['p_alone']}"
        f" ({of['p_alone'] / of['models']:.1%}) [{low:.1%}, {high:.1%}]",
        f"- metrics of these claims: {of['metrics'] or 'none'}",
        "",
        "## Each metric on random weights",
        "",
        "Scores of heads (median, and the middle 95 %), and how often p is below 5 % and 1 %.",
        "",
        "| metric | scores | p < 0.05 | p < 0.01 |",
        "|---|---|---|---|",
    ]
    for label, x in found["chance"].items():
        p = found["p_below"][label]
        out.append(
            f"| `{label}` | {x['median']:g} ({x['low']:g} to {x['high']:g}) | {p['0.05']:.1%}"
            f" | {p['0.01']:.1%} |"
        )
    if found["cost"]:
        out += costs(found)
    return "\n".join([*out, "", found["made"]]) + "\n"


def costs(found: dict[str, Any]) -> list[str]:
    """Format the part about the cost as lines of Markdown."""
    out: list[str] = []
    out += ["", "## Cost", ""]
    out.append(
        f"Seconds over a plain forward pass of the same prompts: medians of {ROUNDS} rounds in"
        " which all runs alternate, in brackets the fastest and slowest. `all measures` is one pass"
        " that computes all of them; experiments make their own prompts (16 of 48 tokens)."
        f" {found['beside']}"
    )
    for x in found["cost"]:
        hidden, layers, heads, kv_heads, n, tokens = x["shape"]
        out += [
            "",
            f"{x['size']}: Llama, width {hidden}, {layers} layers, {heads} heads"
            f" ({kv_heads} for keys), {n} prompts of {tokens} tokens; forward"
            f" {1000 * x['forward_seconds']:.0f} ms.",
            "",
        ]
        out += ["| run | times a forward pass |", "|---|---|"]
        order = sorted(x["ratio"], key=lambda name: -x["ratio"][name])
        for name in order:
            ends = x["spread"][name]
            out.append(f"| {name} | {x['ratio'][name]:g} ({ends[0]:g} to {ends[1]:g}) |")
    return out


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--models", type=int, default=50, help="of each shape")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--keep", type=Path, help="keep what is scored here, and go on with it")
    parser.add_argument(
        "--only", choices=calibration.SHAPES, help="score this shape, write nothing"
    )
    parser.add_argument("--beside", default="Nothing else ran.", help="what else ran at the time")
    given = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    shapes = (given.only,) if given.only else calibration.SHAPES
    part = f"with -m {given.group}"
    found = calibration.familywise(
        given.models, given.draws, given.keep, part, shapes, GROUPS[given.group]
    )
    if given.only:
        return
    found |= {"draws": given.draws, "beside": given.beside}
    found["cost"] = [cost(size) for size in SIZES] if given.group == "geometry" else []
    found["made"] = (
        f"Made by `python benchmarks/calibration_groups.py {given.group} --models {given.models}"
        f" --draws {given.draws}` with interp {interp.__version__}, torch {torch.__version__},"
        f" Python {platform.python_version()}, {torch.get_num_threads()} thread(s)."
    )
    path = HERE / f"calibration_{given.group}.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(page(given.group, found), encoding="utf-8")


if __name__ == "__main__":
    main()
