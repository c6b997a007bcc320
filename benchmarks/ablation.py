"""Exhaustive ablation against the loop of full forwards, and gradient scores against a forward.

    python benchmarks/ablation.py [--heads-per-layer 12] [--repeats 3]

The GPT-2-small shape with random weights. The naive loop zeroes one head's slice at the input of
its output projection and runs the whole model, with full logits and with last-token logits; ours
is `Game.values` on the same heads and prompts. The three are interleaved layer by layer in one
process. Ratios are of processor time of one thread, because the machine may be shared; repeats
differ by about a tenth. Writes benchmarks/ablation.md and .json.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from interp.causal import logit_difference, loss
from interp.causal.game.game import Game
from interp.causal.game.verify import reuse_of
from interp.causal.gradient import gradient_scores
from interp.model.locate.probe import probe
from interp.model.model import Model

LAYERS, HEADS, WIDTH = 12, 12, 64
HERE = Path(__file__).parent


def shape_of_gpt2_small() -> Model:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return probe(GPT2LMHeadModel(GPT2Config()).eval(), "gpt2-small shape")


def timed(run: Callable[[], Tensor]) -> tuple[float, Tensor]:
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


@torch.no_grad()
def naive(model: Model, ids: Tensor, layer: int, head: int, *, last: bool) -> Tensor:
    """Logits of the last token with one head zeroed, the way it is usually written."""

    def zero(module, args):
        z = args[0].clone()
        z[..., head * WIDTH : (head + 1) * WIDTH] = 0
        return (z,)

    projection = model.module.transformer.h[layer].attn.c_proj
    handle = projection.register_forward_pre_hook(zero)
    try:
        keep = {"logits_to_keep": 1} if last else {}
        return model.module(ids, use_cache=False, **keep).logits[:, -1]
    finally:
        handle.remove()


def ablation(model: Model, batch: int, length: int, sample: list[int], repeats: int) -> dict:
    ids = torch.randint(50257, (batch, length), generator=torch.Generator().manual_seed(1))
    task = logit_difference(model, ids, 11, 13)
    game = Game(model, task, check=False)
    # where heads share a batch, ours runs a whole layer; the naive loop needs no more than a sample
    mine = sample if batch * length >= game.max_tokens else list(range(HEADS))
    naive(model, ids, 0, 0, last=False)
    game.values(one_out([0]))  # both have run once before anything is timed
    times: dict[str, list[float]] = {"full": [], "last": [], "ours": []}
    worst = largest = 0.0
    for _ in range(repeats):
        total = dict.fromkeys(times, 0.0)
        for layer in range(LAYERS):
            want = []
            for head in sample:
                for kind in ("full", "last"):
                    seconds, logits = timed(
                        lambda k=kind, h=head, i=layer: naive(model, ids, i, h, last=k == "last")
                    )
                    total[kind] += seconds / len(sample)
                want.append(logits[:, 11].double() - logits[:, 13].double())
            gates = one_out([layer * HEADS + h for h in mine])
            seconds, got = timed(lambda g=gates: game.values(g))
            total["ours"] += seconds / len(mine)
            largest = max(largest, float((got - game.clean).abs().max()))
            got = got[[mine.index(h) for h in sample]]
            worst = max(worst, float((got - torch.stack(want)).abs().max()))
        for kind, seconds in total.items():
            times[kind].append(seconds)
    middle = {kind: statistics.median(x) for kind, x in times.items()}
    return {
        "batch": batch,
        "length": length,
        "naive_heads": LAYERS * len(sample),
        "our_heads": LAYERS * len(mine),
        "repeats": repeats,
        "over_full_logits": middle["full"] / middle["ours"],
        "over_last_logits": middle["last"] / middle["ours"],
        "largest_difference": worst,
        "largest_effect": largest,
    }


def one_out(players: list[int]) -> Tensor:
    gates = torch.ones(len(players), LAYERS * HEADS)
    gates[torch.arange(len(players)), players] = 0
    return gates


def gradients(model: Model, batch: int, length: int, repeats: int) -> dict:
    ids = torch.randint(50257, (batch, length), generator=torch.Generator().manual_seed(3))
    task = loss(model, ids)

    @torch.no_grad()
    def forward() -> Tensor:
        return model.module(ids, use_cache=False).logits

    gradient_scores(model, task, null="none", check=False)  # hashes the weights, once
    times: dict[str, list[float]] = {"forward": [], "scores": [], "all": []}
    for _ in range(repeats):
        times["forward"].append(timed(forward)[0])
        game = Game(model, task, check=False)
        times["scores"].append(timed(lambda g=game: every_form(g))[0])
        start = time.process_time()
        gradient_scores(model, task, null="none")
        times["all"].append(time.process_time() - start)
    middle = {kind: statistics.median(x) for kind, x in times.items()}
    return {
        "batch": batch,
        "length": length,
        "repeats": repeats,
        "over_forward": middle["scores"] / middle["forward"],
        "whole_call": middle["all"] / middle["forward"],
    }


def every_form(game: Game) -> Tensor:
    from interp.causal.gate_derivatives import score_forms

    return torch.as_tensor(score_forms(game, normalise_layers=False)["signed"])


def report(found: dict) -> str:
    lines = [
        "# Exhaustive ablation and gradient scores at the GPT-2-small shape",
        "",
        f"12 layers x 12 heads, random weights, float32, one thread, torch {torch.__version__}, "
        f"{platform.machine()}; ratios of processor time, interleaved in one process. Written by "
        "`python benchmarks/ablation.py`.",
        "",
        "## Zero ablation of single heads: the naive loop's time over ours",
        "",
        "| batch x tokens | heads timed (naive, ours) | over full logits | over last-token logits "
        "| largest difference | largest effect |",
        "|---|---|---|---|---|---|",
    ]
    for x in found["ablation"]:
        lines.append(
            f"| {x['batch']} x {x['length']} | {x['naive_heads']}, {x['our_heads']} | "
            f"{x['over_full_logits']:.1f} | "
            f"{x['over_last_logits']:.1f} | {x['largest_difference']:.0e} | "
            f"{x['largest_effect']:.0e} |"
        )
    lines += [
        "",
        "The task is a logit difference at the last token; differences are between ours and the "
        "naive loop, effects those of an ablation. Times are per head; where fewer than 144 heads "
        "were timed, the same number was taken from every layer.",
        "",
        "Once per model a trial on a few tokens finds what may be put back; it took "
        f"{found['trial_over_forward']:.0f} times a forward of the same tokens.",
        "",
        "## Scores of all 144 heads from gate gradients, over a plain forward with full logits",
        "",
        "| batch x tokens | forward and backward | the whole call |",
        "|---|---|---|",
    ]
    for x in found["gradients"]:
        lines.append(
            f"| {x['batch']} x {x['length']} | {x['over_forward']:.1f} | {x['whole_call']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads-per-layer", type=int, default=HEADS, help="of the naive loop")
    parser.add_argument("--sizes", default="8x128,1x128,8x16,1x16")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    model = shape_of_gpt2_small()
    inputs = {"input_ids": torch.randint(50257, (2, 7))}
    with torch.no_grad():
        model.run(inputs)
        forward = statistics.median(timed(lambda: model.run(inputs))[0] for _ in range(3))
    trial = timed(lambda: torch.tensor(reuse_of(model).fold))[0]
    found: dict = {"trial_over_forward": trial / forward, "ablation": [], "gradients": []}
    for size in chosen.sizes.split(","):
        batch, length = map(int, size.split("x"))
        tokens = batch * length
        sample = list(range(0, HEADS, max(1, HEADS // chosen.heads_per_layer)))
        repeats = 1 if tokens >= 1024 else chosen.repeats
        found["ablation"].append(ablation(model, batch, length, sample, repeats))
        print(found["ablation"][-1], flush=True)
        found["gradients"].append(gradients(model, batch, length, chosen.repeats))
        print(found["gradients"][-1], flush=True)
    (HERE / "ablation.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "ablation.md").write_text(report(found))


if __name__ == "__main__":
    main()
