"""Claims about positions, temperatures, experts of heads and shared states, on trained models."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from interp.core.random_state import drawn_with
from interp.model.pattern_edits import temperature
from papers import fitting
from papers.beside import SOFTMAX
from papers.finding import SEEDS, Numbers, claim, over_seeds
from training import alike
from training.forms import rule_class
from training.forms.rule import Chosen, MapBlock, Projected, Rule, RuleShape, turned_by_place

WIDE = {"vocab_size": 128, "hidden_size": 64, "num_attention_heads": 4}
SHORT, LONG = 32, 160


def place_known(rule: str, seed: int) -> float:
    """Train two layers that see all tokens to say the place of each; return the accuracy."""
    both = type("Both", (rule_class(rule),), {"causal": False})
    model = fitting.without_positions(
        fitting.host([both] * 2, seed, vocab_size=16, **fitting.SMALL)
    )
    ids, places = torch.zeros(1, 16, dtype=torch.long), torch.arange(16)[None]
    fitting.fit(
        model, lambda rng: F.cross_entropy(model(ids).logits.mT, places), steps=300, seed=seed
    )
    with torch.no_grad():
        return float((model(ids).logits.argmax(-1) == places).float().mean())


@claim("Your Transformer May Not be as Powerful")
def universal_positions() -> Numbers:
    """Train both alike; scores of distances inside a softmax should not do better than chance."""
    return tuple(over_seeds(place_known, "relative_bias", "toeplitz_product"))


class OverNumbers(nn.Module):
    """Three layers over eight numbers, with a rule that sees all, and no norms."""

    def __init__(self, rule: type[Rule], seed: int):
        super().__init__()
        with drawn_with(seed):
            shape = RuleShape(32, 4, 8, 8)
            self.rules = nn.ModuleList(rule(shape) for _ in range(3))
            self.into, self.out = nn.Linear(1 + 8, 32), nn.Linear(32, 1)
            self.mlps = nn.ModuleList(
                nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)) for _ in range(3)
            )
        for each in self.rules:
            each.causal = False  # type: ignore[misc]

    def forward(self, numbers: Tensor) -> Tensor:
        places = torch.eye(8).expand(len(numbers), -1, -1)
        x = self.into(torch.cat([numbers[..., None], places], -1))
        for rule, mlp in zip(self.rules, self.mlps, strict=True):
            given: Projected = rule.prepare(x)  # type: ignore[operator]
            x = x + mlp(torch.cat([x, rule.mix(given).transpose(1, 2).flatten(2)], -1))  # type: ignore[operator]
        return self.out(x)[..., 0]


def error_beyond(task: Any, rule: str, seed: int) -> float:
    """Train on numbers up to 2; return the log of the mean squared error on numbers up to 6."""
    model = OverNumbers(rule_class(rule), seed)

    def rows(rng: np.random.Generator, number: int, size: float) -> tuple[Tensor, Tensor]:
        x = torch.tensor(rng.uniform(-size, size, (number, 8)), dtype=torch.float32)
        return x, task(x)

    def loss(rng: np.random.Generator) -> Tensor:
        x, y = rows(rng, 128, 2.0)
        return (model(x) - y).square().mean()

    fitting.fit(model, loss, steps=600, seed=seed, rate=3e-3)
    x, y = rows(np.random.default_rng(99), 1000, 6.0)
    with torch.no_grad():
        return float((model(x) - y).square().mean().log())


@claim("Positional Attention")
def positional_attention() -> Numbers:
    """Train running sums and running minima; compare the errors outside the trained range."""
    for task in (lambda x: x.cumsum(1), lambda x: x.cummin(1).values):
        own, plain = over_seeds(partial(error_beyond, task), "positional", SOFTMAX)
        yield own - plain


class Rotary(Rule):
    """Softmax attention with rotated queries and keys."""

    def prepare(self, x: Tensor) -> Projected:
        given = super().prepare(x)
        given.q, given.k = (turned_by_place(x, given.every) for x in (given.q, given.k))
        return given


class Scaled(Rule):
    """Softmax attention with a factor of the scores per head, which is searched."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.log_factor = nn.Parameter(torch.zeros(shape.n_heads, 1, 1))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        return super().scores(given, rows) * self.log_factor.exp()


@torch.no_grad()
def late_loss(logits: Tensor, ids: Tensor) -> float:
    """Return the loss on tokens beyond the trained length."""
    late = torch.arange(ids.shape[1]) >= SHORT
    return float(fitting.next_token(logits, ids, late.expand(ids.shape)))


@claim("Length Generalization of Causal Transformers without Position Encoding")
def without_position_encoding() -> Numbers:
    """Compare the rises of the loss; search a temperature per head, and edit the model with it."""
    rises, gains = [], []
    held_out = fitting.text(np.random.default_rng(99), 16, LONG, held_out=True)
    for seed in SEEDS:
        rise = {}
        for rule in (SOFTMAX, Rotary):
            model = fitting.host([rule] * 2, seed, max_position_embeddings=LONG, **WIDE)
            fitting.without_positions(model)
            fitting.fit_text(model, seed, steps=300, length=SHORT)
            short = fitting.held_out_loss(model, held_out[:, :SHORT])
            with torch.no_grad():
                rise[rule] = late_loss(model(held_out).logits, held_out) - short
            if rule != Rotary:
                plain = model
        rises.append(rise[SOFTMAX] - rise[Rotary])
        searched = fitting.started([Scaled] * 2, plain, seed, max_position_embeddings=LONG, **WIDE)
        factors = [rule.log_factor for rule in fitting.rules(searched)]
        fitting.fit_text(
            searched, seed, steps=60, length=LONG, number=8, rate=0.05, parameters=factors
        )
        for rule in fitting.rules(plain):
            del rule.mix
        model = interp.load(plain, name="no positions")
        edits = [
            temperature([(layer, head)], float((-each).exp()))
            for layer, factor in enumerate(factors)
            for head, each in enumerate(factor.detach().flatten())
        ]
        found = [model.run(held_out.tolist(), edits=e) for e in ([], edits)]
        gains.append(late_loss(found[1], held_out) - late_loss(found[0], held_out))
    return rises, gains


class Experts(Rule):
    """Softmax heads of which experts leave out one each; a gate of the past mixes the experts."""

    gated = True

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.gate = nn.Sequential(
            nn.Linear(shape.d_model, 32), nn.Tanh(), nn.Linear(32, shape.n_heads)
        )
        self.of_gate = True  # whether this step trains the gate

    def after(self, z: Tensor, given: Projected) -> Tensor:
        """Weight heads by the experts that have them; while heads are trained, by one expert."""
        past = given.x.cumsum(1) / (given.every + 1)[:, None]
        share = self.gate(past).softmax(-1) if self.gated else torch.full_like(z[..., 0].mT, 0.25)
        if self.training and not self.of_gate:
            drawn = torch.distributions.Categorical(share.detach()).sample()
            share = F.one_hot(drawn, share.shape[-1]).to(share)
        heads = share.shape[-1]
        return super().after(z * ((1 - share) * heads / (heads - 1)).mT[..., None], given)


def mixture_of(rule: Any, seed: int) -> float:
    """Train two layers on text, gates and heads in turn where there are gates; return the loss."""
    model, step = fitting.host([rule] * 2, seed, **WIDE), 0
    gates = [rule for rule in fitting.rules(model) if isinstance(rule, Experts)]

    def loss(rng: np.random.Generator) -> Tensor:
        nonlocal step
        step += 1
        for each in gates:
            each.of_gate = each.gated and step % 5 == 0
        for name, weight in model.named_parameters():
            weight.requires_grad_(not gates or (".gate." in name) == gates[0].of_gate)
        ids = fitting.text(rng, 12, 32)
        return fitting.next_token(model(ids).logits, ids)

    fitting.fit(model, loss, steps=300, seed=seed)
    return fitting.held_out_loss(
        model, fitting.text(np.random.default_rng(99), 64, 32, held_out=True)
    )


@claim("A Mixture of h-1 Heads")
def mixture_of_experts() -> Numbers:
    """Train by block coordinate descent; compare with all heads, and with an even mixture."""
    even = type("EvenExperts", (Experts,), {"gated": False})
    own, plain, flat = over_seeds(mixture_of, Experts, SOFTMAX, even)
    return own - plain, own - flat


@torch.no_grad()
def with_states(model: Any, ids: Tensor, steps: int) -> tuple[Tensor, int]:
    """Generate with one cache of normalised states per layer; return tokens and the cache's size.

    The rule of the model reads hidden states as keys.
    """
    caches: list[list[Tensor]] = [[] for _ in model.blocks]
    found = [ids[:, i] for i in range(ids.shape[1])]
    for at in range(ids.shape[1] + steps - 1):
        x = model.embed(found[at]) + model.positions.weight[at]
        for block, cache in zip(model.blocks, caches, strict=True):
            rule, state = block.attention.rule, block.norm(x)
            cache.append(state)
            states = torch.stack(cache, 1)
            given = rule.prepare(state[:, None])
            scores = torch.einsum("bhc,btc->bht", given.q[:, :, 0], states)
            scores = scores * rule.shape.d_head**-0.5
            mixed = torch.einsum("bht,btc->bhc", scores.softmax(-1), states)
            by_head = rule.value.weight.unflatten(0, (rule.shape.n_heads, -1))
            x = x + block.attention.out(torch.einsum("bhc,hdc->bhd", mixed, by_head).flatten(1))
            x = x + block.mlp(block.mlp_norm(x))
        if at >= ids.shape[1] - 1:
            found.append(model.head(model.norm(x)).argmax(-1))
    return torch.stack(found, 1), sum(t.numel() for cache in caches for t in cache)


@claim("EL-Attention")
def hidden_states_as_keys() -> Numbers:
    """Generate 16 tokens after 32 prompts per seed; count differing tokens and cached numbers."""
    unlike, sizes = 0, []
    for seed in alike.SEEDS:
        plain = alike.trained(SOFTMAX, seed)
        shared = fitting.started(["hidden_keys"] * 2, plain, seed, **alike.SIZES)
        ids = torch.cat([alike.asked_rows(SOFTMAX, k, 16).given for k in ("text", "copies")])
        own, cached = with_states(shared, ids, 16)
        for _ in range(16):
            with torch.no_grad():
                ids = torch.cat([ids, plain(ids).logits[:, -1:].argmax(-1)], 1)
        unlike += int((own != ids).sum())
        sizes.append(
            cached / sum(2 * ids[:, 1:].numel() * rule.d_out for rule in fitting.rules(plain))
        )
    return unlike, max(sizes)
