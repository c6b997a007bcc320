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


@torch.no_grad()
def naive_loss(model: Model, ids: Tensor, gates: Tensor) -> Tensor:
    """Loss of each prompt over all tokens with gates `[layer, head]`, the way it is written."""

    def hook(own: Tensor) -> Callable:
        return lambda module, args: (args[0] * own.repeat_interleave(WIDTH),)

    changed = [(i, own) for i, own in enumerate(gates) if not bool((own == 1).all())]
    handles = [
        model.module.transformer.h[i].attn.c_proj.register_forward_pre_hook(hook(own))
        for i, own in changed
    ]
    try:
        logits = model.module(ids, use_cache=False).logits[:, :-1]
    finally:
        for handle in handles:
            handle.remove()
    each = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    )
    return each.reshape(len(ids), -1).mean(1)


def floor() -> float:
    """Share of a forward pass's matrix products that single ablations of a loss cannot save.

    The logits of all tokens, the layers above the head, and of its own layer the output projection
    and the MLP: 9 of 12 squared widths.
    """
    width, vocabulary = HEADS * WIDTH, 50257
    whole = LAYERS * 12 * width**2 + vocabulary * width
    above = (LAYERS * (LAYERS - 1) / 2 * 12 + LAYERS * 9) / LAYERS * width**2
    return (above + vocabulary * width) / whole


def losses(model: Model, batch: int, length: int, repeats: int) -> dict:
    """Single ablation, and all other heads of a layer ablated, of a loss over all tokens."""
    ids = torch.randint(50257, (batch, length), generator=torch.Generator().manual_seed(1))
    game = Game(model, loss(model, ids), check=False)
    alone = torch.ones(LAYERS * HEADS, LAYERS * HEADS)
    for layer in range(LAYERS):
        own = slice(layer * HEADS, (layer + 1) * HEADS)
        alone[own, own] = torch.eye(HEADS)
    found: dict = {"batch": batch, "length": length, "repeats": repeats}
    for name, table in (("single", one_out([*range(LAYERS * HEADS)])), ("all_but_one", alone)):
        sample = table[:: HEADS + 1 if batch * length >= 128 else HEADS // 4]
        mine = sample if batch * length >= game.max_tokens else table
        naive_loss(model, ids, sample[0].reshape(LAYERS, HEADS))
        game.values(mine[:1])
        ratios, differs = [], 0.0
        for _ in range(repeats):
            slow, want = timed(
                lambda s=sample: torch.stack(
                    [naive_loss(model, ids, gates.reshape(LAYERS, HEADS)) for gates in s]
                )
            )
            fast, got = timed(lambda m=mine: game.values(m))
            ratios.append((slow / len(sample)) / (fast / len(mine)))
            same = (
                got
                if mine is sample
                else got[:: HEADS + 1 if batch * length >= 128 else HEADS // 4]
            )
            differs = max(differs, float((same - want).abs().max()))
        found[name], found[f"{name}_difference"] = statistics.median(ratios), differs
    return found


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
        "## Loss over all tokens: the naive loop's time over ours",
        "",
        "| batch x tokens | single heads | all other heads of the layer | largest difference |",
        "|---|---|---|---|",
    ]
    for x in found["losses"]:
        differs = max(x["single_difference"], x["all_but_one_difference"])
        lines.append(
            f"| {x['batch']} x {x['length']} | {x['single']:.1f} | {x['all_but_one']:.1f} | "
            f"{differs:.0e} |"
        )
    lines += [
        "",
        f"The floor: {found['floor']:.2f} of the matrix products of a forward pass cannot be saved "
        "(the logits of all tokens are "
        f"{found['logits']:.2f}, the layers above the head the rest), so that no exact method is "
        f"more than {1 / found['floor']:.2f} times faster where the products fill the processor, "
        "as they do from 128 tokens on; shorter prompts gain by sharing a batch.",
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
    logits = 50257 / (50257 + LAYERS * 12 * HEADS * WIDTH)
    found |= {"losses": [], "floor": floor(), "logits": logits}
    for size in chosen.sizes.split(","):
        batch, length = map(int, size.split("x"))
        tokens = batch * length
        sample = list(range(0, HEADS, max(1, HEADS // chosen.heads_per_layer)))
        repeats = 1 if tokens >= 1024 else chosen.repeats
        found["ablation"].append(ablation(model, batch, length, sample, repeats))
        print(found["ablation"][-1], flush=True)
        found["losses"].append(losses(model, batch, length, repeats))
        print(found["losses"][-1], flush=True)
        found["gradients"].append(gradients(model, batch, length, chosen.repeats))
        print(found["gradients"][-1], flush=True)
    (HERE / "ablation.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "ablation.md").write_text(report(found))


if __name__ == "__main__":
    main()
