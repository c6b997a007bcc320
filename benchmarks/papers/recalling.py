"""Claims about recall by recurrences: size of the state, order of the series, implied maps."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import interp
from interp.core.random_state import drawn_with
from papers import fitting
from papers.finding import SEEDS, Numbers, claim, over_seeds
from training import alike
from training.forms.rule import MapBlock, Projected, Rule, RuleShape
from training.forms.rules.masks import WindowAttention
from training.forms.rules.normalisations import ExponentialNormAttention, TaylorAttention


def narrow(width: int) -> type[Rule]:
    """Return Taylor linear attention whose queries and keys have so many features."""

    class Narrow(TaylorAttention):
        def __init__(self, shape: RuleShape):
            super().__init__(shape)
            size = shape.n_heads * width
            self.query = nn.Linear(shape.d_model, size, bias=False)
            self.key = nn.Linear(shape.d_model, size, bias=False)

        def prepare(self, x: Tensor) -> Projected:
            q, k = (p(x).unflatten(-1, (-1, width)).transpose(1, 2) for p in (self.query, self.key))
            return Projected(x, q, k, self.split(self.value(x)))

    return Narrow


def pairs_in_turn(rng: np.random.Generator, number: int) -> tuple[Tensor, Tensor]:
    """Return rows of eight keys, each before its value, and eight queries with theirs."""
    each = np.arange(number)[:, None]
    key = fitting.distinct(rng, number, 8)
    value = 8 + rng.integers(8, size=key.shape)
    chosen = rng.integers(8, size=key.shape)
    told, asked = (np.stack([key[each, c], value[each, c]], 2) for c in (np.arange(8), chosen))
    ids = torch.tensor(np.concatenate([told, asked], 1).reshape(number, -1))
    counts = torch.zeros(ids.shape, dtype=torch.bool)
    counts[:, 17::2] = True
    return ids, counts


def recall_in_turn(rules: list[Any], seed: int) -> float:
    """Train layers to recall pairs in turn; return the accuracy on held-out rows."""
    model = fitting.host(rules, seed, vocab_size=16, **fitting.SMALL)

    def loss(rng: np.random.Generator) -> Tensor:
        ids, counts = pairs_in_turn(rng, 32)
        return fitting.next_token(model(ids).logits, ids, counts)

    fitting.fit(model, loss, steps=400, seed=seed)
    ids, counts = pairs_in_turn(np.random.default_rng(99), 128)
    with torch.no_grad():
        right = model(ids).logits[:, :-1].argmax(-1) == ids[:, 1:]
    return float(right[counts[:, 1:]].float().mean())


@claim("Simple linear attention language models")
def based() -> Numbers:
    """Compare the recall of the smallest and the largest state, and of keys that are all kept."""
    small, large, full, alone = over_seeds(
        recall_in_turn,
        [WindowAttention, narrow(1)],
        [WindowAttention, narrow(16)],
        [WindowAttention, "plain_softmax"],
        [narrow(16)] * 2,
    )
    return large - small, full - large, large - alone


class Series(ExponentialNormAttention):
    """Terms of the exponential's series up to an order, and a norm of the output."""

    unit_norm = False  # the paper's scores are those of softmax
    order = 1

    def prepare(self, x: Tensor) -> Projected:
        return Rule.prepare(self, x)

    def weights(self, scores: MapBlock, seen: Any) -> MapBlock:
        if self.order == 0:
            return super().weights(scores, seen)
        terms = [scores**n / math.factorial(n) for n in range(1, self.order + 1)]
        return (1 + torch.stack(terms).sum(0)) * seen


@claim("On the Expressiveness of Softmax Attention")
def softmax_as_recurrences() -> Numbers:
    """Compare orders of the series, and the norm with softmax's own denominator."""
    first, second, every, softmax = over_seeds(
        lambda rule, seed: fitting.task_loss(fitting.recalled([rule], seed, 300)),
        Series,
        type("Second", (Series,), {"order": 2}),
        type("Every", (Series,), {"order": 0}),
        "plain_softmax",
    )
    return first - second, first - every, every - softmax


few_pairs = partial(fitting.recall, pairs=4, noise=4, asked=8)


def small_mamba(seed: int) -> nn.Module:
    """Train a small Mamba to recall."""
    from transformers import MambaConfig, MambaForCausalLM

    with drawn_with(seed):
        model = MambaForCausalLM(
            MambaConfig(vocab_size=fitting.WORDS, hidden_size=32, num_hidden_layers=2, state_size=8)
        )

    return fitting.learn(model, few_pairs, seed, steps=500)


@claim("A Unified Implicit Attention Formulation")
@torch.no_grad()
def implicit_attention() -> Numbers:
    """Roll out maps of the scan alone, and of convolution, scan and gate; find the needed pair."""
    over_scan, over_chance = [], []
    for seed in SEEDS:
        asked = few_pairs(np.random.default_rng(99), 64)
        full, scan = (needed(x, asked) for x in rolled_out(small_mamba(seed), asked.given))
        over_scan.append(full - scan)
        over_chance.append(full - 1 / 8)
    return over_scan, over_chance


def rolled_out(module: Any, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the products over layers of maps, of channels' mean: whole ones, and of the scan."""
    layers, entered = module.backbone.layers, []
    model = interp.load(module, name="mamba")
    for layer in layers:
        layer.mixer.in_proj.register_forward_hook(lambda m, a, out: entered.append(out))
    full, scan = torch.eye(ids.shape[1]), torch.eye(ids.shape[1])

    def read(site: Any, call: Any, real: Any) -> None:
        nonlocal full, scan
        rows = torch.arange(ids.shape[1])
        maps = call.of_channels(rows, slice(None)).flatten(1, 2)
        gate = call.to_projection(torch.ones_like(call.z)).mT[..., None]
        conv = layers[site.layer].mixer.conv1d
        convolved = conv.forward(entered[-1].chunk(2, -1)[0].mT)[..., : len(rows)]
        opened = convolved[:, :, None].sigmoid()  # silu(x) / x
        taps = conv.weight[:, 0].flip(-1)  # the own position first
        gap = rows[:, None] - rows
        taps = taps[:, gap.clamp(0, taps.shape[1] - 1)] * ((gap >= 0) & (gap < taps.shape[1]))
        full = onto(gate * ((maps * opened) @ taps), full)
        scan = onto(maps, scan)

    model.read(ids.tolist(), read)
    return full, scan


def onto(maps: Tensor, rolled: Tensor) -> Tensor:
    """Multiply what was rolled out by a layer's mean map and the stream beside it."""
    shares = maps.abs().mean(1)
    shares = shares / shares.sum(-1, keepdim=True)
    return (shares + torch.eye(shares.shape[-1])) @ rolled


def needed(rolled: Tensor, asked: alike.Rows) -> float:
    """Return the share of queries that weigh the pair with their key most of all told tokens."""
    told, hits = asked.given[:, :8], []
    for at in range(8, asked.given.shape[1]):
        first = rolled[:, at, :8].argmax(-1)
        token = told.gather(1, first[:, None])[:, 0] - (
            fitting.KEYS + fitting.VALUES + fitting.NOISE
        )
        hits.append((token >= 0) & (token // fitting.VALUES == asked.given[:, at]))
    return float(torch.stack(hits).float().mean())
