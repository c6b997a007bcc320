"""Edits while a model writes: differences to runs without a cache, and what they cost.

    python benchmarks/writing.py exact     # families x caches x ways of decoding x edits
    python benchmarks/writing.py cost      # processor time of GPT-2's shape, a minute or two
    python benchmarks/writing.py           # both

A finished family is kept in writing.json, and the same call goes on with the others (`--again`
begins anew). Writes writing.md beside this file.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import interp
from interp.model.calls.sites import softmax_sites
from interp.model.pattern_edits import uniform

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))  # the tiny models of every architecture

import zoo  # noqa: E402
from zoo.writing import difference, edits_for, left_padded  # noqa: E402

FAMILIES = (
    "gpt2",
    "llama",
    "qwen3",
    "mistral_sliding",
    "gemma2",
    "gemma3",
    "gpt_oss",
    "deepseek_v3",
    "jamba",
    "bloom",
    "t5",
    "whisper",
)
STATIC = {"cache_implementation": "static"}
QUANTISED = {"cache_implementation": "quantized", "cache_config": {"backend": "quanto"}}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "sampling": {"do_sample": True},
    "static, greedy": STATIC,
    "static, beams": STATIC | {"num_beams": 3},
    "static, sampling": STATIC | {"do_sample": True},
    "quantised, greedy": QUANTISED,
}
"""The cache is the family's own (sliding where it has a window) unless another is named."""
ROUNDS, NEW, PROMPT = 9, 16, 128


def family(name: str) -> dict[str, Any]:
    """Largest difference of log-probabilities of a family, for each way of decoding and edit."""
    made = zoo.FAMILIES[name]
    model = interp.load(made.model(made.attentions[-1]), name=name)
    padded = model.kind == "causal" and model.padding.left is not None
    if model.kind == "encoder-decoder":
        inputs = {k: v for k, v in made.inputs().items() if not k.startswith("decoder")}
    else:
        inputs = (
            left_padded(model) if padded else {"input_ids": left_padded(model, (9, 9))["input_ids"]}
        )
    layer = [s for s in softmax_sites(model.sites) if s.stack == "decoder"][-1].layer
    heads, found = [(layer, 1), (layer, 2)], {}
    edits: dict[str, Callable] = {"none": lambda h, n: None, **edits_for(model, padded)}
    for way, options in WAYS.items():
        found[way] = {}
        for edit, make in edits.items():

            def at(n: int, make: Callable = make) -> list:
                one = make(heads, n)
                return [] if one is None else [one]

            torch.manual_seed(0)
            try:
                found[way][edit] = difference(model, inputs, at, **options)[:2]
            except (ImportError, ValueError, NotImplementedError, TypeError, RuntimeError) as error:
                found[way] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:90]}"
                break
    return {"padded": padded, "ways": found}


def cost() -> dict[str, Any]:
    """Processor time per generation of GPT-2's shape, as ratios to the plain one."""
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.GPT2Config(bos_token_id=None, eos_token_id=None)
    module = transformers.GPT2LMHeadModel(config).eval()
    model = interp.load(module, name="gpt2-shape")
    ids = torch.randint(0, 50_000, (1, PROMPT), generator=torch.Generator().manual_seed(0))

    def write() -> None:
        module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW,
            do_sample=False,
            pad_token_id=0,
        )

    def edited(edit: Any) -> Callable[[], None]:
        def run() -> None:
            with model.edited(edit):
                write()

        return run

    def reading() -> None:
        def entropy(site: Any, call: Any, real: Any) -> None:
            row = call.pattern(torch.tensor([call.z.shape[2] - 1]))
            (-(row * row.clamp_min(1e-30).log()).sum(-1)).mean()

        with model.visited(entropy):
            write()

    def capturing(**how: Any) -> None:
        model.generate(ids.tolist(), NEW, **how)

    every = [f"L{i}H1" for i in range(12)]
    runs: dict[str, Callable[[], None]] = {
        "plain": write,
        "zero one head": edited(interp.zero("L5H1")),
        "zero a head of each layer": edited(interp.zero(every)),
        "uniform attention of a head of each layer": edited(uniform(every)),
        "raise a segment in a head of each layer": edited(
            interp.model.reweight(every, slice(8, 32), 4.0)
        ),
        "read the entropy of every head at every step": reading,
        "capture every pattern": lambda: capturing(names=["pattern"]),
        "a policy that reads every pattern": lambda: capturing(policy=_policy),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for each in range(ROUNDS + 1):  # the first round warms up
        for name, run in runs.items():
            begin = time.process_time()
            run()
            if each:
                seconds[name].append(time.process_time() - begin)
    plain = seconds["plain"]
    ratios = {name: [a / b for a, b in zip(x, plain, strict=True)] for name, x in seconds.items()}
    return {
        name: {
            "seconds": statistics.median(seconds[name]),
            "ratio": statistics.median(ratios[name]),
            "quartiles": statistics.quantiles(ratios[name], n=4)[::2],
        }
        for name in runs
    }


def _policy(step: Any) -> None:
    step.cache["pattern", 0].sum()


_policy.names = ("pattern",)  # type: ignore[attr-defined]


def page(found: dict[str, Any]) -> str:
    """Write the page."""
    lines = [
        "# Edits while a model writes",
        "",
        "The module's own `generate` runs inside `with model.edited(edit)`. At every step and row "
        "(beams included) the log-probabilities of the next token are compared with those of an "
        "edited run of the whole text without a cache. Two prompts of unequal length, padded on "
        "the left where the family allows it; two heads of the last softmax layer are edited; "
        "tiny random models, float32. Numbers are the largest difference over all edits, in nats; "
        "`none` is the difference without an edit, which is the family's own rounding. Made by "
        "`python benchmarks/writing.py`.",
        "",
        "| family | " + " | ".join(WAYS) + " | none, worst |",
        "|---|" + "---|" * (len(WAYS) + 1),
    ]
    notes: dict[str, str] = {}
    exact = found.get("exact", {})
    for name, of in exact.items():
        cells, none = [], 0.0
        for way in WAYS:
            values = of["ways"][way]
            if isinstance(values, str):
                notes.setdefault(values, f"{chr(97 + len(notes))}")
                cells.append(f"({notes[values]})")
                continue
            none = max(none, values["none"][0])
            cells.append(f"{max(x for e, (x, _) in values.items() if e != 'none'):.1e}")
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {none:.1e} |")
    lines += ["", *(f"({sign}) not run: {why}" for why, sign in notes.items())]
    if exact:
        edits = sorted(
            {
                e
                for of in exact.values()
                for v in of["ways"].values()
                if isinstance(v, dict)
                for e in v
            }
        )
        worst = {
            e: max(
                v[e][0]
                for of in exact.values()
                for v in of["ways"].values()
                if isinstance(v, dict) and e in v
            )
            for e in edits
        }
        count = sum(
            v[e][1]
            for of in exact.values()
            for v in of["ways"].values()
            if isinstance(v, dict)
            for e in v
        )
        lines += [
            "",
            f"By edit, over all families and ways ({count:,} rows were compared; columns "
            "of the prompt are named only where no prompt is padded):",
            "",
            "| edit | largest difference |",
            "|---|---|",
            *(f"| {e} | {worst[e]:.1e} |" for e in edits),
        ]
    if "cost" in found:
        lines += [
            "",
            "## Cost",
            "",
            f"GPT-2's shape (12 layers, random weights), prompts of {PROMPT} tokens, {NEW} "
            "new tokens, one thread; processor time over that of plain `generate` in the "
            f"same round, median of {ROUNDS} interleaved rounds and quartiles.",
            "",
            "| run | seconds | ratio | quartiles |",
            "|---|---|---|---|",
        ]
        for name, x in found["cost"].items():
            low, high = x["quartiles"]
            lines.append(
                f"| {name} | {x['seconds']:.3f} | {x['ratio']:.3f} | {low:.3f} to {high:.3f} |"
            )
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Run the parts that are asked for, and write the page."""
    path = HERE / "writing.json"
    found = json.loads(path.read_text()) if path.exists() and "--again" not in arguments else {}
    parts = [a for a in arguments if not a.startswith("-")] or ["exact", "cost"]
    if "exact" in parts:
        for name in FAMILIES:
            if name not in found.setdefault("exact", {}):
                found["exact"][name] = family(name)
                path.write_text(json.dumps(found, indent=1) + "\n")
                print(name, flush=True)
    if "cost" in parts:
        found["cost"] = cost()
    path.write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "writing.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
