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
Draw = Callable[[np.random.Generator, int], alike.Rows]
RATE = 4e-3
PLAIN: dict[str, Any] = {"betas": (0.9, 0.999), "weight_decay": 0.0, "clip": False}  # Adam
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
    clip: bool = True,
    **adam: Any,
) -> None:
    """Train in place: AdamW, 50 steps of warming up, then a linear fall to a tenth of the rate."""
    given = list(module.parameters() if parameters is None else parameters)
    optimizer = torch.optim.AdamW(given, lr=rate, **{"betas": (0.9, 0.98)} | adam)
    rng = np.random.default_rng(seed)
    module.train()
    with drawn_with(seed):
        for step in range(steps):
            now = rate * min(1, (step + 1) / 50) * (1 - 0.9 * step / steps)
            step_down(optimizer, loss(rng), now, clip)
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
        set_rules(model, rules)
    return model


def set_rules(model: Any, rules: Sequence[str | type[Rule]]) -> None:
    """Give each layer of a model a rule of its own, in its parallel form."""
    for attention, rule in zip(attentions(model), rules, strict=True):
        kind = forms.rule_class(rule) if isinstance(rule, str) else rule
        attention.rule = kind(attention.rule.shape)
        parallel(attention.rule)


def parallel(rule: Any) -> None:
    """Let a rule multiply its map by the values, whatever its recurrence is."""
    rule.mix = types.MethodType(alike.in_parallel, rule)


def without_positions(model: Any) -> Any:
    """Set the learned positions to zero, for good."""
    model.positions.weight.requires_grad_(False).zero_()
    return model


def attentions(model: Any) -> list[Any]:
    """Return the attention modules of a model, by layer."""
    return [block.attention for block in model.blocks]


def rules(model: Any) -> list[Any]:
    """Return the rules of the layers of a model."""
    return [block.attention.rule for block in model.blocks]


def next_token(logits: Tensor, ids: Tensor, counts: Tensor | None = None) -> Tensor:
    """Return the mean loss of the next token, where it counts (`[row, pos]`, of the token)."""
    each = F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
    if counts is None:
        return each.mean()
    return each[counts[:, 1:]].mean()


@torch.no_grad()
def held_out_loss(model: nn.Module, ids: Tensor, counts: Tensor | None = None) -> float:
    """Return the mean loss of the next token in rows."""
    return float(next_token(model(ids).logits, ids, counts))


def divergence(student: nn.Module, teacher: nn.Module, ids: Tensor) -> Tensor:
    """Return how far the predictions of a student are from its teacher's, in nats per token."""
    with torch.no_grad():
        wanted = teacher(ids).logits.log_softmax(-1)
    own = student(ids).logits.log_softmax(-1)
    return F.kl_div(own, wanted, log_target=True, reduction="none").sum(-1).mean()


def started(rules: Sequence[str | type[Rule]], model: nn.Module, seed: int, **sizes: Any) -> Any:
    """Return a model with these rules that starts from the weights of another."""
    made = host(rules, seed, **sizes)
    made.load_state_dict(model.state_dict(), strict=False)
    return made


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


def learn(
    model: nn.Module, draw: Draw, seed: int, *, steps: int = 400, few: int | None = None
) -> Any:
    """Train on rows of a task: drawn anew, or from as few as given."""
    kept = draw(np.random.default_rng(1000 + seed), few) if few else None

    def loss(rng: np.random.Generator) -> Tensor:
        if kept is None:
            rows = draw(rng, 32)
        else:
            some = torch.tensor(rng.integers(len(kept.given), size=32))
            rows = alike.Rows(*(part[some] for part in kept))
        return alike.mean_loss(model(rows.given).logits, rows)

    fit(model, loss, steps=steps, seed=seed)
    return model


@torch.no_grad()
def task_loss(model: nn.Module, draw: Draw = recall) -> float:
    """Return the loss on 128 held-out rows of a task."""
    rows = draw(np.random.default_rng(99), 128)
    return float(alike.mean_loss(model(rows.given).logits, rows))


def recalled(rules: Sequence[str | type[Rule]], seed: int, steps: int = 400) -> VariantForCausalLM:
    """Return layers with these rules that were trained to recall; width 32, two heads."""
    return learn(host(rules, seed, vocab_size=WORDS, **SMALL), recall, seed, steps=steps)


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
