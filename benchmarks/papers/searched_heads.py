"""Claims about positions, temperatures, experts of heads and shared states, on trained models."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from benchmarks.paper_findings import Finding
from interp.core.random_state import drawn_with
from interp.model.pattern_edits import temperature
from papers.finding import SEEDS, TRAINED, above, below, claim, exact, over_seeds
from papers.fitting import SMALL, attentions, fit, fit_text, host, next_token, text
from training import alike
from training.forms import rule_class
from training.forms.rule import Chosen, MapBlock, Projected, Rule, RuleShape, turned_by_place

WIDE = {"vocab_size": 128, "hidden_size": 64, "num_attention_heads": 4}
SHORT, LONG = 32, 160


def without_positions(model: Any) -> Any:
    """Set the learned positions to zero, for good."""
    model.positions.weight.requires_grad_(False).zero_()
    return model


def place_known(rule: str, seed: int) -> float:
    """Train two layers that see all tokens to say the place of each; return the accuracy."""
    both = type("Both", (rule_class(rule),), {"causal": False})
    model = without_positions(host([both] * 2, seed, vocab_size=16, **SMALL))
    ids, places = torch.zeros(1, 16, dtype=torch.long), torch.arange(16)[None]
    fit(model, lambda rng: F.cross_entropy(model(ids).logits.mT, places), steps=300, seed=seed)
    with torch.no_grad():
        return float((model(ids).logits.argmax(-1) == places).float().mean())


@claim(
    "Your Transformer May Not be as Powerful",
    "two layers with the rules of variant:relative_bias and variant:toeplitz_product without "
    "other positions, trained to say the place of each of sixteen equal tokens",
)
def universal_positions() -> list[Finding]:
    """Train both alike; scores of distances inside a softmax should not do better than chance."""
    inside, outside = over_seeds(place_known, "relative_bias", "toeplitz_product")
    return [
        below("accuracy with scores of distances", inside, TRAINED, 0.1, "share"),
        above("accuracy with factors of distances", outside, TRAINED, 0.9, "share"),
    ]


class Numbers(nn.Module):
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
        """Return a number per place."""
        places = torch.eye(8).expand(len(numbers), -1, -1)
        x = self.into(torch.cat([numbers[..., None], places], -1))
        for rule, mlp in zip(self.rules, self.mlps, strict=True):
            given: Projected = rule.prepare(x)  # type: ignore[operator]
            x = x + mlp(torch.cat([x, rule.mix(given).transpose(1, 2).flatten(2)], -1))  # type: ignore[operator]
        return self.out(x)[..., 0]


def error_beyond(task: Any, rule: str, seed: int) -> float:
    """Train on numbers up to 2; return the log of the mean squared error on numbers up to 6."""
    model = Numbers(rule_class(rule), seed)

    def rows(rng: np.random.Generator, number: int, size: float) -> tuple[Tensor, Tensor]:
        x = torch.tensor(rng.uniform(-size, size, (number, 8)), dtype=torch.float32)
        return x, task(x)

    def loss(rng: np.random.Generator) -> Tensor:
        x, y = rows(rng, 128, 2.0)
        return (model(x) - y).square().mean()

    fit(model, loss, steps=600, seed=seed, rate=3e-3)
    x, y = rows(np.random.default_rng(99), 1000, 6.0)
    with torch.no_grad():
        return float((model(x) - y).square().mean().log())


@claim(
    "Positional Attention",
    "three layers with the rules of variant:positional and variant:plain_softmax, trained alike on "
    "eight numbers up to 2 and tested on numbers up to 6",
)
def positional_attention() -> list[Finding]:
    """Train running sums and running minima; compare the errors outside the trained range."""
    tasks = {"sums": lambda x: x.cumsum(1), "minima": lambda x: x.cummin(1).values}
    found = []
    for name, task in tasks.items():
        own, plain = over_seeds(partial(error_beyond, task), "positional", "plain_softmax")
        what = f"log squared error of running {name} minus that of softmax"
        found.append(below(what, own - plain, f"{TRAINED}, 1000 rows each", unit="log ratio"))
    return found


class Rotary(Rule):
    """Softmax attention with rotated queries and keys."""

    def prepare(self, x: Tensor) -> Projected:
        """Turn queries and keys by their places."""
        given = super().prepare(x)
        given.q, given.k = (
            turned_by_place(given.q, given.every),
            turned_by_place(given.k, given.every),
        )
        return given


class Scaled(Rule):
    """Softmax attention with a factor of the scores per head, which is searched."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.log_factor = nn.Parameter(torch.zeros(shape.n_heads, 1, 1))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Multiply the scores."""
        return super().scores(given, rows) * self.log_factor.exp()


@torch.no_grad()
def late_loss(logits: Tensor, ids: Tensor) -> float:
    """Return the loss on tokens beyond the trained length."""
    late = torch.arange(ids.shape[1]) >= SHORT
    return float(next_token(logits, ids, late.expand(ids.shape)))


@claim(
    "Length Generalization of Causal Transformers without Position Encoding",
    "two layers of softmax heads without positions, and with rotary positions, trained alike on "
    "text of 32 tokens and read over 160",
)
def without_position_encoding() -> list[Finding]:
    """Compare the rises of the loss; search a temperature per head, and edit the model with it."""
    rises, gains = [], []
    held_out = text(np.random.default_rng(99), 16, LONG, held_out=True)
    for seed in SEEDS:
        rise = {}
        for rule in ("plain_softmax", Rotary):
            model = host([rule] * 2, seed, max_position_embeddings=LONG, **WIDE)
            without_positions(model)
            fit_text(model, seed, steps=300, length=SHORT)
            with torch.no_grad():
                short = float(next_token(model(held_out[:, :SHORT]).logits, held_out[:, :SHORT]))
                rise[rule] = late_loss(model(held_out).logits, held_out) - short
            if rule != Rotary:
                plain = model
        rises.append(rise["plain_softmax"] - rise[Rotary])
        searched = host([Scaled] * 2, seed, max_position_embeddings=LONG, **WIDE)
        searched.load_state_dict(plain.state_dict(), strict=False)
        factors = [a.rule.log_factor for a in attentions(searched)]
        fit_text(searched, seed, steps=60, length=LONG, number=8, rate=0.05, parameters=factors)
        for attention in attentions(plain):
            del attention.rule.mix
        model = interp.load(plain, name="no positions")
        edits = [
            temperature([(layer, head)], float((-each).exp()))
            for layer, factor in enumerate(factors)
            for head, each in enumerate(factor.detach().flatten())
        ]
        found = [model.run(held_out.tolist(), edits=e) for e in ([], edits)]
        gains.append(late_loss(found[1], held_out) - late_loss(found[0], held_out))
    n = f"{TRAINED}, 16 held-out rows each"
    return [
        below(
            "rise of the loss beyond the trained length, no positions minus rotary positions",
            rises,
            n,
        ),
        below("loss beyond the trained length with searched temperatures minus without", gains, n),
    ]


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
    model, step = host([rule] * 2, seed, **WIDE), 0
    gates = [a.rule for a in attentions(model) if isinstance(a.rule, Experts)]

    def loss(rng: np.random.Generator) -> Tensor:
        nonlocal step
        step += 1
        for each in gates:
            each.of_gate = each.gated and step % 5 == 0
        for name, weight in model.named_parameters():
            weight.requires_grad_(not gates or (".gate." in name) == gates[0].of_gate)
        ids = text(rng, 12, 32)
        return next_token(model(ids).logits, ids)

    fit(model, loss, steps=300, seed=seed)
    held_out = text(np.random.default_rng(99), 64, 32, held_out=True)
    with torch.no_grad():
        return float(next_token(model(held_out).logits, held_out))


@claim(
    "A Mixture of h-1 Heads",
    "two layers of four softmax heads and mixtures of their experts of three, trained alike on "
    "text, the gates and the experts in turn",
)
def mixture_of_experts() -> list[Finding]:
    """Train by block coordinate descent; compare with all heads, and with an even mixture."""
    even = type("EvenExperts", (Experts,), {"gated": False})
    own, plain, flat = over_seeds(mixture_of, Experts, "plain_softmax", even)
    n = f"{TRAINED}, 64 held-out rows each"
    return [
        below("loss on text of the mixture minus all heads", own - plain, n),
        below("loss on text of the mixture minus an even one", own - flat, n),
    ]


@torch.no_grad()
def with_states(model: Any, ids: Tensor, steps: int) -> tuple[Tensor, int]:
    """Generate with one cache of normalised states per layer; return tokens and the cache's size.

    Args:
        model: a model whose rule reads hidden states as keys.
        ids: prompts.
        steps: number of tokens to generate.
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
            scores = (
                torch.einsum("bhc,btc->bht", given.q[:, :, 0], states) * rule.shape.d_head**-0.5
            )
            mixed = torch.einsum("bht,btc->bhc", scores.softmax(-1), states)
            by_head = rule.value.weight.unflatten(0, (rule.shape.n_heads, -1))
            x = x + block.attention.out(torch.einsum("bhc,hdc->bhd", mixed, by_head).flatten(1))
            x = x + block.mlp(block.mlp_norm(x))
        if at >= ids.shape[1] - 1:
            found.append(model.head(model.norm(x)).argmax(-1))
    return torch.stack(found, 1), sum(t.numel() for cache in caches for t in cache)


@claim(
    "EL-Attention",
    "softmax models trained alike, generating with the weights in variant:hidden_keys and one "
    "cache of hidden states per layer",
)
def hidden_states_as_keys() -> list[Finding]:
    """Generate 16 tokens after 32 prompts per seed; count differing tokens and cached numbers."""
    unlike, sizes = 0, []
    for seed in alike.SEEDS:
        plain = alike.trained("plain_softmax", seed)
        shared = host(["hidden_keys"] * 2, seed, **alike.SIZES)
        shared.load_state_dict(plain.state_dict())
        ids = torch.cat(
            [alike.asked_rows("plain_softmax", k, 16).given for k in ("text", "copies")]
        )
        own, cached = with_states(shared, ids, 16)
        for _ in range(16):
            with torch.no_grad():
                ids = torch.cat([ids, plain(ids).logits[:, -1:].argmax(-1)], 1)
        unlike += int((own != ids).sum())
        sizes.append(cached / sum(2 * ids[:, 1:].numel() * a.rule.d_out for a in attentions(plain)))
    n = "3 seeds, 32 prompts each"
    return [
        exact(
            "generated tokens that differ from those with keys and values",
            unlike,
            "tokens",
            "below",
            1,
            f"{n}, 16 tokens generated",
        ),
        exact(
            "numbers cached as hidden states over those of keys and values",
            max(sizes),
            "share",
            "below",
            0.6,
            n,
        ),
    ]
