"""Claims on forms of attention with gates, memories, rounds and learned powers, trained alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import stats

from benchmarks.paper_findings import Finding
from interp.core.rank_statistics import paired_spearman
from papers.beside import ALIKE, ROWS, SAMPLES, apart, better, maps, no_worse
from papers.finding import claim, exact, mean
from papers.linear_forms import COUNTED, LINEAR, growth, rule_of
from training import alike, forms
from training.forms.rule import RuleShape

PAST = np.tril(np.ones((alike.LENGTH, alike.LENGTH), bool))  # [query, key]


@claim("Knocking-heads", f"variant knocking_heads beside softmax, {ALIKE}")
def knocking_heads() -> Finding:
    """Loss with maps that the heads share, minus without."""
    return better("knocking_heads")


@claim("Fibottention", f"variant fibonacci beside softmax, {ALIKE}; no images")
def fibottention() -> list[Finding]:
    """Loss beside softmax, and the share of pairs seen by 12 heads of 196 patches."""
    rule = forms.rule_class("fibonacci")(RuleShape(96, 12, 8, 196))
    seen = rule.seen(rule.prepare(torch.zeros(1, 196, 96)), torch.arange(196)).float()
    share = 2 * seen.mean() - seen.diagonal(0, 1, 2).mean() / 196  # both ways
    what = "share of the pairs of 196 patches that 12 heads see, looking both ways"
    return [no_worse("fibonacci"), exact(what, float(share), "share", "below", 0.06, "all pairs")]


@claim("Change of Thought", f"variant fixed_point beside softmax, {ALIKE}; causal, no encoder")
def change_of_thought() -> list[Finding]:
    """Loss beside softmax, and whether rows of text with a higher loss take more rounds."""
    return [
        better("fixed_point"),
        mean(
            "rank correlation of the loss of a row of text and its rounds",
            [_rounds_and_loss(s) for s in alike.SEEDS],
            "rank correlation",
            "above",
            0,
            SAMPLES,
        ),
    ]


@torch.no_grad()
def _rounds_and_loss(seed: int) -> float:
    model, asked = alike.trained("fixed_point", seed), alike.asked_rows("fixed_point", "text", ROWS)
    rounds: list[torch.Tensor] = []
    for block in model.blocks:
        attention: Any = block.attention
        attention.projected.register_forward_hook(
            lambda module, args, given: rounds.append(given.more["rounds"].mean(-1))
        )
    loss = (alike.losses(model(asked.given).logits, asked) * asked.counts).mean(-1)
    return float(paired_spearman(loss.numpy(), torch.stack(rounds).sum(0).numpy()))


@claim("You Need to Pay Better", f"variants of the paper's three forms beside softmax, {ALIKE}")
def pay_better_attention() -> list[Finding]:
    """Loss without value projections, also without key projections, and with positions mixed."""
    return [
        no_worse("optimised_attention"),
        no_worse("efficient_attention"),
        better("super_attention"),
    ]


@claim("Prototypical Memory", f"variant prototype_memory, {ALIKE}; text, no captions of images")
def prototypes() -> list[Finding]:
    """Loss beside softmax without memory, and beside learned slots."""
    return [better("prototype_memory"), better("prototype_memory", "memory_slots")]


@claim("Routing Transformers", f"variant clusters beside a window of 4, {ALIKE}")
def routing() -> list[Finding]:
    """Loss beside a window of about as many keys, and the share of keys that a row sees."""
    return [
        better("clusters", "window"),
        mean(
            "keys that a row of text sees, over those that it sees in a window of 4",
            [_seen("clusters", s) / _seen("window", s) for s in alike.SEEDS],
            "ratio",
            "below",
            1.5,
            SAMPLES,
        ),
    ]


def _seen(form: str, seed: int) -> float:
    return float((maps(form, seed)[..., PAST] > 0).mean())


@claim("Flowformer", f"variant causal_flow beside softmax and linear attention, {ALIKE}")
def flowformer() -> list[Finding]:
    """Growth of the cost; loss beside softmax, and beside linear attention."""
    return [
        exact(LINEAR, growth("causal_flow"), "ratio", "below", 1.1, COUNTED),
        no_worse("causal_flow"),
        better("causal_flow", "linear"),
    ]


@claim("Principled Context Control", f"variant query_temperature beside softmax, {ALIKE}")
def selective() -> list[Finding]:
    """Loss beside softmax, and how much the sharpness of rows differs."""
    what = "spread of the entropy of rows over 17 tokens or more: query_temperature minus softmax"
    return [
        better("query_temperature"),
        mean(what, apart(_spread, "query_temperature"), "nats", "above", 0, SAMPLES),
    ]


def _spread(form: str, seed: int) -> float:
    """Return the standard deviation of the entropies of late rows, mean of the heads."""
    entropies = [stats.entropy(m[:, :, 16:], axis=-1) for m in maps(form, seed)]
    return float(np.mean([e.std((0, 2)) for e in entropies]))


@claim("Nyströmformer", f"variant nystrom beside both_ways, {ALIKE}")
def nystromformer() -> list[Finding]:
    """Loss beside softmax over all positions; error of its map beside that of mean keys."""
    what = "relative error of a map through 8 landmarks minus one through 8 mean keys"
    errors = [_landmark_errors(s) for s in alike.SEEDS]
    return [
        no_worse("nystrom", "both_ways"),
        mean(what, errors, "share", "below", 0, SAMPLES),
    ]


@torch.no_grad()
def _landmark_errors(seed: int) -> float:
    """Return the error of a map through landmarks minus that through mean keys."""
    model, nystrom = alike.trained("both_ways", seed), rule_of(alike.trained("nystrom", seed))
    nystrom.landmarks, found = 8, []
    asked = alike.asked_rows("both_ways", "text", ROWS)
    for block in model.blocks:
        attention: Any = block.attention
        given: list[Any] = []
        attention.projected.register_forward_hook(lambda m, args, out, g=given: g.append(out))
        model(asked.given)
        [state] = given
        exact_map = attention.rule.rows(state, state.every)
        through = nystrom.parts(state)["landmarks"](state.every)
        means = torch.nn.functional.adaptive_avg_pool1d(state.k.flatten(0, 1).mT, 8).mT
        few = state.q @ means.unflatten(0, state.k.shape[:2]).mT * state.q.shape[-1] ** -0.5
        size = alike.LENGTH // 8
        spread = few.softmax(-1).repeat_interleave(size, -1) / size
        norm = exact_map.norm()
        found.append(float(((through - exact_map).norm() - (spread - exact_map).norm()) / norm))
    return float(np.mean(found))


@claim("Sparse Attention with Linear Units", f"variant relu_norm beside softmax, {ALIKE}")
def rectified() -> list[Finding]:
    """Loss beside softmax, weights that are 0, rows without any weight, and how heads differ."""
    zeros, closed = zip(*(_zeros(s) for s in alike.SEEDS), strict=True)
    return [
        no_worse("relu_norm"),
        mean("share of the weights that are 0", zeros, "share", "above", 0.5, SAMPLES),
        mean("share of rows that attend to nothing", closed, "share", "above", 0, SAMPLES),
        mean(
            "divergence of a layer's heads on text: relu_norm minus softmax",
            apart(between_heads, "relu_norm"),
            "nats",
            "above",
            0,
            SAMPLES,
        ),
    ]


def _zeros(seed: int) -> tuple[float, float]:
    each = maps("relu_norm", seed)
    return float((each[..., PAST] == 0).mean()), float((each.sum(-1) == 0).mean())


def between_heads(form: str, seed: int) -> float:
    """Return the Jensen-Shannon divergence of a layer's heads, over rows where all attend."""
    found = []
    for m in maps(form, seed):
        total = m.sum(-1)
        rows = (total > 0).all(1)
        share = np.moveaxis(m / np.maximum(total, 1e-12)[..., None], 1, 2)[rows]
        both = stats.entropy(share.mean(1), axis=-1) - stats.entropy(share, axis=-1).mean(-1)
        found.append(float(both.mean()))
    return float(np.mean(found))


@claim("Adaptively Sparse", f"variant adaptive_entmax beside softmax, {ALIKE}")
def adaptively_sparse() -> list[Finding]:
    """Loss and divergence of heads beside softmax."""
    return [
        no_worse("adaptive_entmax"),
        mean(
            "divergence of a layer's heads on text: adaptive_entmax minus softmax",
            apart(between_heads, "adaptive_entmax"),
            "nats",
            "above",
            0,
            SAMPLES,
        ),
    ]


@claim("You Only Sample", f"variant hash_samples beside softmax, {ALIKE}")
def sampled() -> list[Finding]:
    """Loss of draws beside softmax, and beside their expectation."""
    return [no_worse("hash_samples"), no_worse("hash_samples", "hash_collisions")]


@claim("Mega: Moving Average", f"variant moving_average beside softmax of four heads, {ALIKE}")
def mega() -> Finding:
    """Loss of one gated head on moving averages minus that of softmax."""
    return better("moving_average")
