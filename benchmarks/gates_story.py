"""The smallest model that keeps 95 % of the indirect-object accuracy, and what it loses on stories.

    python benchmarks/gates_story.py MODEL STORIES.json

MODEL is a language model of children's stories, STORIES.json a list of texts. Prompts are split by
pairs of names into three parts: heads are ranked on the first, the size is chosen on the second,
and every number of the result is measured on the third, of the checkpoint that was written. Writes
gates_story.json and gates_story.md beside this file.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from interp.causal import (
    aumann_shapley,
    learn_gates,
    leave_one_out,
    logit_difference,
    next_token_task,
    ranked_heads,
    save_pruned,
)
from interp.causal.checkpoint.certificate import mean_and_interval
from interp.causal.game.game import Game
from interp.causal.gating.units import GatedUnits, layer_matched_sets
from interp.causal.task import Task
from interp.core.prompts import Prompts
from interp.core.statistics import percentile_interval
from interp.model.model import Model

HERE = Path(__file__).parent
NAMES = ("Anna", "Tom", "Lily", "Tim", "Sara", "Ben", "Mia", "Max", "Sam", "Lucy", "Jack", "Amy")
TEMPLATES = (
    "One day, {A} and {B} went to the park. {S} gave a ball to",
    "{A} and {B} were playing. Then {S} gave the toy to",
    "Once upon a time, {A} and {B} went to the shop. {S} wanted to give a cake to",
    "After {A} and {B} came home, {S} showed a book to",
    "One day, {A} and {B} met at the park, and {S} gave a flower to",
    "{A} and {B} played in the garden. Then {S} wanted to give a hat to",
)
PARTS = {"ranking": 128, "size": 200, "result": 300}
SIZES = (4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128)
N_STORIES, TOKENS, N_RANDOM = 100, 64, 20
RESTARTS, STEPS = 2, 150
SHARE = 0.95


def prompts_of(model: Model) -> dict[str, Task]:
    """Logit difference of receiver and giver, on prompts of three disjoint sets of name pairs."""
    rng = np.random.default_rng(28)
    pairs = list(itertools.combinations(NAMES, 2))
    pairs = [pairs[i] for i in rng.permutation(len(pairs))]
    token = {x: model.tokenizer(f" {x}", add_special_tokens=False)["input_ids"] for x in NAMES}
    assert all(len(x) == 1 for x in token.values()), "a name is split"
    found = {}
    for at, (part, n) in enumerate(PARTS.items()):
        every = [
            (text.format(A=a, B=b, S=s), token[b if s == a else a][0], token[s][0], f"{x} {y}")
            for x, y in pairs[at::3]
            for a, b in ((x, y), (y, x))
            for s in (x, y)
            for text in TEMPLATES
        ]
        rows = [every[i] for i in rng.permutation(len(every))[:n]]
        texts, right, wrong, labels = zip(*rows, strict=True)
        given = Prompts.of(list(texts), model)
        given = Prompts(given.ids, f"indirect objects, {part}", clusters=labels)
        found[part] = logit_difference(model, given, list(right), list(wrong), name="ioi")
    return found


def right(values: Any) -> np.ndarray:
    """1 where the receiver's logit is higher."""
    return (np.asarray(values) > 0).astype(float)


def orders(model: Model, task: Task) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Order heads by each method, the first to keep first; with seconds and gates' facts."""
    given: dict[str, Any] = {"kind": "mean-dataset", "reference": task.prompts}
    seconds, found = {}, {}
    start = time.time()
    gates = learn_gates(model, task, n_restarts=RESTARTS, steps=STEPS, n_random=2, **given)
    seconds["gates"] = time.time() - start
    found["gates"] = list(gates.order())
    for name, score in (("ablation", leave_one_out), ("aumann_shapley", aumann_shapley)):
        start = time.time()
        ranked = score(model, task, null="none", **given)
        seconds[name] = time.time() - start
        labels = ranked.players.labels
        found[name] = [labels[i] for i in np.argsort(-ranked.helps(), kind="stable")]
    taken = sum(gates.steps)
    print({k: round(v) for k, v in seconds.items()}, flush=True)
    return found, {"seconds": seconds, "steps": taken, "settled": list(gates.settled)}


def table_of(labels: tuple[str, ...], sets: list[list[str]]) -> torch.Tensor:
    """Gates of sets of kept heads, `[set, head]`."""
    return torch.tensor([[float(x in kept) for x in labels] for kept in sets]).double()


def main(source: str, stories: str) -> None:
    model = interp.load(source)
    tasks = prompts_of(model)
    found, about = orders(model, tasks["ranking"])
    given: dict[str, Any] = {"kind": "mean-dataset", "reference": tasks["ranking"].prompts}
    game = Game(model, tasks["size"], **given)
    labels = game.players.labels
    whole = float(right(game.clean).mean())
    curves, chosen = {}, {}
    sizes = [k for k in SIZES if k < len(labels)]
    for method, order in found.items():
        values = game.values(table_of(labels, [order[:k] for k in sizes]))
        curves[method] = right(values).mean(1).tolist()
        # the smallest size from which every larger one keeps the accuracy
        good = [x >= SHARE * whole for x in curves[method]]
        held = [k for i, k in enumerate(sizes) if all(good[i:])]
        chosen[method] = held[0] if held else len(labels)
    best = min(chosen, key=lambda m: chosen[m])
    print(whole, curves, chosen, flush=True)
    keep = chosen[best]
    removed = ranked_heads(model, found[best], keep)
    judged = tasks["result"]
    texts = next_token_task(
        model, json.loads(Path(stories).read_text())[:N_STORIES], max_length=TOKENS
    )
    with tempfile.TemporaryDirectory() as folder:
        made = {
            form: save_pruned(
                model,
                removed,
                Path(folder) / form,
                form=form,
                kind="mean",
                reference=tasks["ranking"].prompts,
            )
            for form in ("zeroed", "compact")
        }
        small = interp.load(str(Path(folder) / "zeroed"))
        rows = {}
        for name, task, read in (("accuracy", judged, right), ("story loss", texts, np.asarray)):
            x, y = (read(Game(m, task, check=False).clean) for m in (model, small))
            one = {"before": x, "after": y, "change": y - x}
            rows[name] = {k: mean_and_interval(v, task.clusters) for k, v in one.items()}
    units = GatedUnits.of(model, "heads", "none")
    kept = table_of(labels, [found[best][:keep]])[0].numpy()
    sets = layer_matched_sets(units, kept, N_RANDOM, np.random.default_rng(0))
    for name, task, read in (("accuracy", judged, right), ("story loss", texts, np.asarray)):
        random = read(Game(model, task, **given).values(sets)).mean(1)
        rows[name]["random"] = [float(random.mean()), *map(float, percentile_interval(random))]
    told = about | {
        "model": made["zeroed"].certificate["original"] | {"name": model.name},
        "kept": found[best][:keep],
        "method": best,
        "chosen": chosen,
        "sizes": sizes,
        "curves": curves,
        "whole": whole,
        "rows": rows,
        "size": {k: v.certificate["size"] for k, v in made.items()},
        "difference": {k: v.certificate["logits"]["difference"] for k, v in made.items()},
    }
    (HERE / "gates_story.json").write_text(json.dumps(told, indent=1) + "\n")
    (HERE / "gates_story.md").write_text(page(told))


def page(told: dict[str, Any]) -> str:
    """Markdown of the result."""
    per_step = told["seconds"]["gates"] / told["steps"]
    size, n = told["size"], len(told["kept"])
    heads = size["zeroed"]["before"]["heads"]
    chosen = ", ".join(f"{m} {k}" for m, k in told["chosen"].items())
    lines = [
        "# The smallest model that keeps 95 % of the indirect-object accuracy",
        "",
        f"A story model of {size['zeroed']['before']['parameters']:,} parameters "
        f"({told['model']['class']}, {heads} heads, weights {told['model']['content_hash'][:12]}); "
        f"{len(NAMES)} names, {len(TEMPLATES)} sentences; chance is 0.5. Heads were ranked on "
        f"{PARTS['ranking']} prompts (gates: fitted on half of them), the size was chosen on "
        f"{PARTS['size']} prompts of other pairs of names, and the result is of "
        f"{PARTS['result']} prompts of a third set of pairs. Removed heads are replaced by their "
        "mean over the ranking prompts, folded into the output bias. Intervals are 95 %, over "
        f"pairs of names or stories; the last column is the mean and the middle 95 % of {N_RANDOM} "
        "random sets with as many heads in every layer. "
        "Made by `python benchmarks/gates_story.py`.",
        "",
        f"Gates took {told['seconds']['gates']:.0f} s for {told['steps']} steps ("
        f"{RESTARTS} restarts of {STEPS}), "
        "on a core shared with other programs "
        f"({per_step:.2f} s per step). `command_times.md` has the time of the command's default.",
        "",
        f"Heads needed for 95 % of the accuracy on the size prompts: {chosen}. Written: "
        f"{n} of {heads} heads, by {told['method']}.",
        "",
        "| on held-out prompts | before | after | change | random sets |",
        "|---" * 5 + "|",
    ]
    for name, row in told["rows"].items():
        cells = [
            f"{x['value']:.3f} [{x['low']:.3f}, {x['high']:.3f}]"
            for x in (row["before"], row["after"], row["change"])
        ]
        mean, low, high = row["random"]
        unit = "share right" if name == "accuracy" else "nats per token"
        lines.append(
            f"| {name} ({unit}) | {' | '.join(cells)} | {mean:.3f}, {low:.3f} to {high:.3f} |"
        )
    lines += [
        "",
        "| checkpoint | parameters | not zero | file bytes | cache bytes per token | "
        "largest difference of the outputs |",
        "|---" * 6 + "|",
    ]
    every = [("original", size["zeroed"]["before"]), *((k, v["after"]) for k, v in size.items())]
    for name, one in every:
        gap = told["difference"].get(name)
        lines.append(
            f"| {name} | {one['parameters']:,} | {one['nonzero_parameters']:,} | "
            f"{format(one['file_bytes'], ',') if gap is not None else ''} | "
            f"{one['cache_bytes_per_token']:,} | "
            f"{'' if gap is None else f'{gap:.1e}'} |"
        )
    lines += [
        "",
        "| heads kept | " + " | ".join(told["curves"]) + " |",
        "|---" * (len(told["curves"]) + 1) + "|",
    ]
    for i, k in enumerate(told["sizes"]):
        lines.append(
            f"| {k} | " + " | ".join(f"{c[i]:.3f}" for c in told["curves"].values()) + " |"
        )
    lines.append(
        f"| {heads} | " + " | ".join(f"{told['whole']:.3f}" for _ in told["curves"]) + " |"
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(*sys.argv[1:3])
