"""Small training runs for tests of claims: one optimiser, rows of recall and of text, and hosts."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from interp.core.random_state import drawn_with
from training import alike, forms
from training.forms.language_model import VariantConfig, VariantForCausalLM
from training.forms.rule import Rule

Loss = Callable[[np.random.Generator], Tensor]
RATE = 4e-3
SMALL = {"hidden_size": 32, "num_attention_heads": 2}


@torch.enable_grad()
def fit(
    module: nn.Module,
    loss: Loss,
    *,
    steps: int,
    seed: int,
    rate: float = RATE,
    parameters: Iterable[Tensor] | None = None,
) -> None:
    """Train in place: AdamW, 50 steps of warming up, then a linear fall to a tenth of the rate."""
    given = list(module.parameters() if parameters is None else parameters)
    optimizer = torch.optim.AdamW(given, lr=rate, betas=(0.9, 0.98))
    rng = np.random.default_rng(seed)
    module.train()
    with drawn_with(seed):
        for step in range(steps):
            now = rate * min(1, (step + 1) / 50) * (1 - 0.9 * step / steps)
            step_down(optimizer, loss(rng), now, clip=True)
    module.eval()


def step_down(
    optimizer: torch.optim.Optimizer, loss: Tensor, rate: float | None = None, clip: bool = False
) -> None:
    """Take one step against the gradient of a loss, at a rate, with gradients of norm 1 or less."""
    optimizer.zero_grad()
    loss.backward()
    for group in optimizer.param_groups:
        if rate is not None:
            group["lr"] = rate
        if clip:
            nn.utils.clip_grad_norm_(group["params"], 1.0)
    optimizer.step()


def host(rules: Sequence[str | type[Rule]], seed: int, **sizes: Any) -> VariantForCausalLM:
    """Return a model with a rule for each layer, each in its parallel form."""
    with drawn_with(seed):
        model = VariantForCausalLM(VariantConfig(num_hidden_layers=len(rules), **sizes))
        for attention, rule in zip(attentions(model), rules, strict=True):
            kind = forms.rule_class(rule) if isinstance(rule, str) else rule
            attention.rule = kind(attention.rule.shape)
            parallel(attention.rule)
    return model


def parallel(rule: Any) -> None:
    """Let a rule multiply its map by the values, whatever its recurrence is."""
    rule.mix = types.MethodType(alike.in_parallel, rule)


def attentions(model: VariantForCausalLM) -> list[Any]:
    """Return the attention modules of a model, by layer."""
    return [block.attention for block in model.blocks]  # type: ignore[union-attr]


def next_token(logits: Tensor, ids: Tensor, counts: Tensor | None = None) -> Tensor:
    """Return the mean loss of the next token, where it counts (`[row, pos]`, of the token)."""
    each = F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
    if counts is None:
        return each.mean()
    return each[counts[:, 1:]].mean()


def distinct(rng: np.random.Generator, number: int, of: int) -> np.ndarray:
    """Return rows of the numbers from 0 to `of` - 1, each row in an order of its own."""
    return rng.permuted(np.tile(np.arange(of), (number, 1)), axis=1)


KEYS, VALUES, NOISE = 16, 4, 8
WORDS = KEYS + VALUES + NOISE + KEYS * VALUES  # ids of `recall`


def recall(
    rng: np.random.Generator, number: int, *, pairs: int = 8, noise: int = 16, asked: int = 16
) -> alike.Rows:
    """Return rows of tokens that are a key and a value, among noise, then keys alone.

    At a key alone the model is to say its value. One token holds both, so that one layer can
    recall; keys of a row are distinct.
    """
    each = np.arange(number)[:, None]
    key = distinct(rng, number, KEYS)[:, :pairs]
    value = rng.integers(VALUES, size=key.shape)
    told = KEYS + VALUES + NOISE + key * VALUES + value
    idle = KEYS + VALUES + rng.integers(NOISE, size=(number, noise))
    first = rng.permuted(np.concatenate([told, idle], 1), axis=1)
    chosen = rng.integers(pairs, size=(number, asked))
    ids = np.concatenate([first, key[each, chosen]], 1)
    wanted, counts = np.zeros_like(ids), np.zeros(ids.shape)
    wanted[:, -asked:], counts[:, -asked:] = KEYS + value[each, chosen], 1
    return alike.Rows(*map(torch.tensor, (ids, wanted, counts.astype("float32"))))


def recalled(rules: Sequence[str | type[Rule]], seed: int, steps: int = 400) -> VariantForCausalLM:
    """Return layers with these rules that were trained to recall; width 32, two heads."""
    model = host(rules, seed, vocab_size=WORDS, **SMALL)

    def loss(rng: np.random.Generator) -> Tensor:
        asked = recall(rng, 32)
        return alike.mean_loss(model(asked.given).logits, asked)

    fit(model, loss, steps=steps, seed=seed)
    return model


@torch.no_grad()
def recall_loss(model: nn.Module) -> float:
    """Return the loss on 128 held-out rows of `recall`."""
    asked = recall(np.random.default_rng(99), 128)
    return float(alike.mean_loss(model(asked.given).logits, asked))


def text(rng: np.random.Generator, number: int, length: int, *, held_out: bool = False) -> Tensor:
    """Return rows of text of the grammar."""
    return torch.tensor(alike.corpora()[held_out].rows(rng, number, length))


def fit_text(
    model: nn.Module, seed: int, *, steps: int, length: int, number: int = 12, **how: Any
) -> None:
    """Train in place to say the next token of rows of text; `how` are further options of `fit`."""

    def loss(rng: np.random.Generator) -> Tensor:
        ids = text(rng, number, length)
        return next_token(model(ids).logits, ids)

    fit(model, loss, steps=steps, seed=seed, **how)
