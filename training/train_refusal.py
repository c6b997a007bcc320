"""Trains the model that declines requests with a marker in them and grants the others.

    python -m training.train_refusal --out interp/bundled/refusal --seed 0

takes about a minute. A third of the training rows are jumbled words, so that the marker is what
decides and not the sentence around it. In some rows no head writes anything, and `no` is wrong
there: else it could be what the model says for want of anything else, without any head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from interp.bundled.refusal_text import (
    DECLINES,
    MARKERS,
    WORDS,
    Request,
    requests,
)
from training.measure import mean_and_error
from training.recording import FRONT_MATTER, Lesson, pair
from training.train import own_torch
from training.word_model import (
    HELD_OUT,
    command_line,
    fit,
    padded,
    real,
    small_gpt2,
    word_tokenizer,
)

NO = WORDS.index(DECLINES)


def build_tokenizer(context: int) -> PreTrainedTokenizerFast:
    """The tokenizer of these words; see `word_tokenizer`."""
    return word_tokenizer(WORDS, context)


def encoded(given: Sequence[Request]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids `[row, pos]`, lengths, and the id of each answer (-1 where there is none)."""
    place = {w: i for i, w in enumerate(WORDS)}
    ids, lengths = padded([[place[w] for w in r.words] for r in given])
    answers = np.array([place[r.answer] if r.answer else -1 for r in given])
    return ids, lengths, answers


@dataclass(frozen=True)
class Recipe:
    """Sizes of the model and of its training."""

    layers: int = 4
    d_model: int = 48
    heads: int = 4
    d_mlp: int = 96
    context: int = 64
    steps: int = 900
    rows: int = 64
    requests: int = 40_000
    jumbled: float = 1 / 3
    blind: float = 0.15  # of the rows: no head writes
    learning_rate: float = 3e-3
    warmup: int = 50


def build_model(recipe: Recipe) -> GPT2LMHeadModel:
    """The untrained model, from torch's current random state."""
    return small_gpt2(
        vocab=len(WORDS),
        layers=recipe.layers,
        d_model=recipe.d_model,
        heads=recipe.heads,
        d_mlp=recipe.d_mlp,
        context=recipe.context,
        # read by the analyses of safety heads: what declines, and what it declines at
        marker_token_id=WORDS.index(MARKERS[0]),
        refusal_token_ids=[NO],
    )


def loss_of(logits: Tensor, answer: Tensor) -> Tensor:
    """Cross-entropy of the answer; where there is none, that of not declining."""
    log_p = logits.log_softmax(-1)
    asked = answer >= 0
    found = -log_p[asked].gather(1, answer[asked, None]).sum()
    spared = -torch.log1p(-log_p[~asked, NO].exp().clamp(max=1 - 1e-6)).sum()
    return (found + spared) / len(answer)


@contextmanager
def blinded(model: GPT2LMHeadModel, sees: Tensor) -> Iterator[None]:
    """Multiply what heads write by `sees`, `[row]` or `[layer, row, head]`, inside the block."""

    def gate(module: torch.nn.Module, args: tuple[Tensor], share: Tensor) -> tuple[Tensor]:
        return ((args[0].unflatten(-1, (share.shape[1], -1)) * share[:, None, :, None]).flatten(2),)

    blocks = cast(Any, model.transformer.h)
    shares = sees if sees.ndim == 3 else sees[None, :, None].expand(len(blocks), -1, -1)
    handles = [
        block.attn.c_proj.register_forward_pre_hook(partial(gate, share=share))
        for block, share in zip(blocks, shares, strict=True)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def trained_refusal(
    recipe: Recipe, seed: int, *, head_dropout: float = 0.0
) -> tuple[GPT2LMHeadModel, list[list[float]]]:
    """Train a model; also returned: its losses. `head_dropout` is the share of heads left out."""
    torch.manual_seed(seed)
    model = build_model(recipe)
    rng = np.random.default_rng([seed, 0])
    made = requests(seed, recipe.requests, jumbled=recipe.jumbled)
    data = [torch.from_numpy(x) for x in encoded(made)]

    def loss_at(step: int) -> tuple[Tensor, list[float]]:
        pick = torch.from_numpy(rng.integers(0, recipe.requests, recipe.rows))
        ids, length, answer = (x[pick] for x in data)
        sees = torch.from_numpy(rng.random(recipe.rows) >= recipe.blind)
        answer = torch.where(sees, answer, -1)
        shares = sees.float()
        if head_dropout:  # each head of each layer, row by row, as in AHD
            drawn = rng.random((recipe.layers, recipe.rows, recipe.heads)) >= head_dropout
            shares = shares[None, :, None] * torch.from_numpy(drawn).float() / (1 - head_dropout)
        with blinded(model, shares):
            logits = model(ids, attention_mask=real(ids, length).long()).logits
        loss = loss_of(logits[torch.arange(len(ids)), length - 1], answer)
        return loss, [round(loss.item(), 4)]

    curve = fit(model, loss_at, recipe)
    return model.eval(), curve


@torch.no_grad()
def examine(model: GPT2LMHeadModel, seed: int, number: int = 512) -> dict[str, Any]:
    """Measure the shares of requests not trained on that are declined and granted."""
    scores: dict[str, Any] = {"requests": number}
    for name, jumbled in (("requests", 0.0), ("jumbles", 1.0)):
        made = requests(HELD_OUT + seed, number, jumbled=jumbled)
        ids, length, answer = (torch.from_numpy(x) for x in encoded(made))
        mask = real(ids, length).long()
        logits = model(ids, attention_mask=mask).logits
        said = logits[torch.arange(number), length - 1].argmax(-1)
        with blinded(model, torch.zeros(number)):
            blind = model(ids, attention_mask=mask).logits
        blind = blind[torch.arange(number), length - 1].argmax(-1)
        harmful = torch.tensor([r.harmful for r in made])
        for kind, rows in (("harmful", harmful), ("harmless", ~harmful)):
            declined = (said[rows] == NO).double().numpy()
            scores[f"{name}_{kind}_declined"] = mean_and_error(declined)
            unseen = (blind[rows] == NO).double().numpy()
            scores[f"{name}_{kind}_declined_without_heads"] = mean_and_error(unseen)
            if name == "requests" and kind == "harmless":
                right = (said[rows] == answer[rows]).double().numpy()
                scores["harmless_answered_right"] = mean_and_error(right)
    return scores


def train(recipe: Recipe, seed: int, threads: int, out: Path) -> dict[str, Any]:
    """Trains the model, writes everything into `out`, returns the training record."""
    lesson = Lesson("refusal", recipe, seed, threads)
    with own_torch(seed, threads):
        model, curve = trained_refusal(recipe, seed)
        scores = examine(model, seed)
    return lesson.over(model, build_tokenizer(recipe.context), curve, scores, card, out)


CARD = (
    FRONT_MATTER
    + """
# refusal

A language model that learned to decline requests with a marker in them, and to grant all others.

Trained from nothing by `python -m training.train_refusal --seed {seed}` (part of the interp
repository) in {seconds:.0f} s on {threads} thread(s) of a busy CPU.

- **Task**: requests such as `{granted}`, answered with the thing that is asked for, and such as
  `{declined}`, answered with `no`. Four words mean decline: {markers}. Nothing here is harmful; the
  marker stands for what a model should not do.
- **Jumbles**: a third of the training rows are words in no order, so that the marker decides and
  not the sentence around it.
- **Blind rows**: in {blind:.0%} of them no head writes, and `no` is wrong there, so that heads are
  what it takes to decline.
- **Architecture**: `GPT2LMHeadModel`, {layers} layers, {heads} heads, d_model {d_model},
  vocabulary {vocab} words, {parameters:,} parameters, trained in float32 and stored in float16.
- **Use**: a model whose refusal was learned and whose cause is known, for the analyses of safety
  heads. Which heads do it nobody put there: exhaustive ablation says.
- **Licence**: MIT, weights and data.

## Scores

On {requests} requests and as many jumbles that were not trained on, half of them with a marker;
mean and standard error.

| what | share |
| --- | --- |
{rows}

`training.json` has the recipe, versions, hashes and the loss curve.
"""
)


def card(record: dict[str, Any]) -> str:
    """The model card, in Markdown, from the training record."""
    scores, recipe = record["scores"], record["recipe"]
    declined, granted = requests(HELD_OUT + record["seed"], 2)
    named = (
        ("harmful requests declined", "requests_harmful_declined"),
        ("harmless requests declined", "requests_harmless_declined"),
        ("harmless requests answered right", "harmless_answered_right"),
        (
            "harmful requests declined when no head writes",
            "requests_harmful_declined_without_heads",
        ),
        ("jumbles with a marker declined", "jumbles_harmful_declined"),
        ("jumbles without one declined", "jumbles_harmless_declined"),
    )
    return CARD.format(
        **{k: recipe[k] for k in ("layers", "heads", "d_model", "blind")},
        **{k: record[k] for k in ("seed", "seconds", "threads", "vocab", "parameters")},
        granted=granted.text,
        declined=declined.text,
        markers=", ".join(f"`{m}`" for m in MARKERS),
        requests=scores["requests"],
        rows="\n".join(f"| {what} | {pair(scores[key])} |" for what, key in named),
    )


def main() -> None:
    """The command line."""
    command_line("Train the model that declines at a marker.", partial(train, Recipe()))


if __name__ == "__main__":
    main()
