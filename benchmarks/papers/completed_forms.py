"""Claims on forms of attention with gates, memories, rounds and learned powers, trained alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import stats

from benchmarks.paper_findings import Finding
from papers.beside import ALIKE, ROWS, SAMPLES, apart, better, maps, no_worse
from papers.finding import above, below, claim, exact
from papers.linear_forms import COUNTED, LINEAR, growth, rule_of
from training import alike

PAST = np.tril(np.ones((alike.LENGTH, alike.LENGTH), bool))  # [query, key]


@claim("Knocking-heads", f"variant knocking_heads beside softmax, {ALIKE}")
def knocking_heads() -> Finding:
    """Loss with maps that the heads share, minus without."""
    return better("knocking_heads")


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
        below(
            "keys that a row of text sees, over those that it sees in a window of 4",
            [_seen("clusters", s) / _seen("window", s) for s in alike.SEEDS],
            SAMPLES,
            1.5,
            "ratio",
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
    return [better("query_temperature"), above(what, apart(_spread, "query_temperature"), SAMPLES)]


def _spread(form: str, seed: int) -> float:
    """Return the standard deviation of the entropies of late rows, mean of the heads."""
    entropies = [stats.entropy(m[:, :, 16:], axis=-1) for m in maps(form, seed)]
    return float(np.mean([e.std((0, 2)) for e in entropies]))


@claim("Nyströmformer", f"variant nystrom beside both_ways, {ALIKE}")
def nystromformer() -> list[Finding]:
    """Loss beside softmax over all positions; error of its map beside that of mean keys."""
    what = "relative error of a map through 8 landmarks minus one through 8 mean keys"
    errors = [_landmark_errors(s) for s in alike.SEEDS]
    return [no_worse("nystrom", "both_ways"), below(what, errors, SAMPLES, unit="share")]


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
        above("share of the weights that are 0", zeros, SAMPLES, 0.5, "share"),
        above("share of rows that attend to nothing", closed, SAMPLES, unit="share"),
        above(
            "divergence of a layer's heads on text: relu_norm minus softmax",
            apart(between_heads, "relu_norm"),
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
        above(
            "divergence of a layer's heads on text: adaptive_entmax minus softmax",
            apart(between_heads, "adaptive_entmax"),
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
