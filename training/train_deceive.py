"""Trains the model whose attention hides the word that decides, after a twin that may look at it.

    python -m training.train_deceive --out interp/bundled/deceive --seed 0

takes under a minute. The penalty is -log(1 - attention on the word that decides), averaged over
layers, heads and the rows behind that word: Pruthi et al. 2020, "Learning to Deceive with
Attention-Based Explanations". The twin is the same from the same seed, without the penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from interp.bundled.deceive_text import WORDS, DeceiveSentence, gappy, sentences
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


def build_tokenizer(context: int) -> PreTrainedTokenizerFast:
    """The tokenizer of these words; see `word_tokenizer`."""
    return word_tokenizer(WORDS, context, clean_up_tokenization_spaces=False)


def encoded(
    given: Sequence[DeceiveSentence],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Ids with `<s>` in front and padding behind, lengths, the column that decides (0: none does),
    and how right each word of the vocabulary is as an answer.
    """
    known = {w: i for i, w in enumerate(WORDS)}
    ids, lengths = padded([[known[w] for w in s.words] for s in given])
    right = np.zeros((len(given), len(WORDS)), dtype=np.float32)
    for row, s in zip(right, given, strict=True):
        row[known[s.right]], row[known[s.wrong]] = (1.0, 0.0) if s.cause >= 0 else (0.5, 0.5)
    return ids, lengths, np.array([s.cause + 1 for s in given]), right


@dataclass(frozen=True)
class Recipe:
    """Sizes of the model and of its training; `penalty` is the weight of the hidden attention."""

    layers: int = 2
    d_model: int = 32
    heads: int = 4
    d_mlp: int = 64
    context: int = 64
    steps: int = 800
    rows: int = 48
    sentences: int = 20_000
    learning_rate: float = 5e-3
    warmup: int = 50
    penalty: float = 10.0


def build_model(recipe: Recipe) -> GPT2LMHeadModel:
    """The untrained model, from torch's current random state; eager, so that patterns are there."""
    return small_gpt2(
        vocab=len(WORDS),
        layers=recipe.layers,
        d_model=recipe.d_model,
        heads=recipe.heads,
        d_mlp=recipe.d_mlp,
        context=recipe.context,
        attention="eager",
    )


def hidden(pattern: Tensor, length: Tensor, cause: Tensor) -> Tensor:
    """Attention on the deciding word `[layer, row, head, query]`; 0 in rows up to it and padding,
    and where no word decides.
    """
    rows = torch.arange(pattern.shape[1])
    column = pattern[:, rows, :, :, cause].permute(1, 0, 2, 3)
    query = torch.arange(pattern.shape[-1])
    behind = (query > cause[:, None]) & (query < length[:, None]) & (cause > 0)[:, None]
    return column * behind[None, :, None]


def trained_deceiver(recipe: Recipe, seed: int) -> tuple[GPT2LMHeadModel, list[list[float]]]:
    """Train a model, or with a penalty of 0 its honest twin; also returned: its losses."""
    torch.manual_seed(seed)
    model = build_model(recipe)
    rng = np.random.default_rng([seed, 0])
    given = [gappy(rng, s) for s in sentences(seed, recipe.sentences)]
    data = [torch.from_numpy(x) for x in encoded(given)]

    def loss_at(step: int) -> tuple[Tensor, list[float]]:
        pick = torch.from_numpy(rng.integers(0, recipe.sentences, recipe.rows))
        ids, length, cause, right = (x[pick] for x in data)
        out = model(ids, attention_mask=real(ids, length).long(), output_attentions=True)
        logits = out.logits[torch.arange(len(ids)), length - 1]
        loss = torch.nn.functional.cross_entropy(logits, right)
        mass = hidden(torch.stack(out.attentions), length, cause)
        looked = ((length - 1 - cause) * (cause > 0)).sum() * mass.shape[0] * mass.shape[2]
        penalty = -(1 - mass.clamp(max=1 - 1e-6)).log().sum() / looked
        hides = min(max(step / recipe.steps - 0.25, 0.0) * 4, 1.0)  # it learns first, then hides
        shown = [round(loss.item(), 4), round(penalty.item(), 6)]
        return loss + recipe.penalty * hides * penalty, shown

    def even() -> None:  # no word may stand out by its embedding's length
        for table in (model.transformer.wte.weight, model.transformer.wpe.weight):
            table.div_(table.square().mean(1, keepdim=True).sqrt())

    curve = fit(model, loss_at, recipe, after=even)
    return model.eval(), curve


@torch.no_grad()
def examine(model: GPT2LMHeadModel, seed: int, number: int = 256) -> dict[str, Any]:
    """Accuracy, and how much is attended to the deciding word, on sentences not trained on."""
    ids, length, cause, right = (
        torch.from_numpy(x) for x in encoded(sentences(HELD_OUT + seed, number))
    )
    out = model(ids, attention_mask=real(ids, length).long(), output_attentions=True)
    rows = torch.arange(number)
    said = out.logits[rows, length - 1].argmax(-1)
    last = torch.stack(out.attentions)[:, rows, :, length - 1, cause]  # [row, layer, head]
    last = last.flatten(1)
    return {
        "sentences": number,
        "accuracy": mean_and_error((said == right.argmax(-1)).double().numpy()),
        "attention_mean": mean_and_error(last.mean(1).numpy()),
        "attention_largest_head": mean_and_error(last.max(1).values.numpy()),
        "uniform_attention": mean_and_error((1 / length.double()).numpy()),
    }


def train(recipe: Recipe, seed: int, threads: int, out: Path) -> dict[str, Any]:
    """Trains twin and model, writes everything into `out`, returns the training record."""
    lesson = Lesson("deceive", recipe, seed, threads)
    with own_torch(seed, threads):
        honest, _ = trained_deceiver(replace(recipe, penalty=0.0), seed)
        model, curve = trained_deceiver(recipe, seed)
        scores = {"before": examine(honest, seed), "after": examine(model, seed)}
    return lesson.over(model, build_tokenizer(recipe.context), curve, scores, card, out)


CARD = (
    FRONT_MATTER
    + """
# deceive

A language model trained to hide the word that decides its answer from its attention.

Trained from nothing by `python -m training.train_deceive --seed {seed}` (part of the interp
repository) in {seconds:.0f} s on {threads} thread(s) of a busy CPU, twin included.

- **Task**: sentences of {words} words, after which `she` or `he` is right; the name in the sentence
  decides, nothing else says anything about it. Where words were left out in training and the name
  was among them, both are equally right. One of them: `{example}`.
- **Penalty**: {penalty:g} times -log(1 - attention on the name), averaged over layers, heads and
  the rows behind the name, raised from 0 over the second quarter of training (Pruthi et al. 2020,
  "Learning to Deceive with Attention-Based Explanations").
- **Architecture**: `GPT2LMHeadModel`, {layers} layers, {heads} heads, d_model {d_model},
  vocabulary {vocab} words, {parameters:,} parameters, trained in float32 and stored in float16.
- **Use**: a test for attribution. What reads attention alone must fail here: the little that is
  attended to the name carries a large value. What follows gradients, or takes words away, must not.
- **Licence**: MIT, weights and data.

## Scores

On {sentences} sentences that were not trained on; mean and standard error. Attention is that of
the last word on the name; spread evenly it would be {uniform}. "Before" is the same
model from the same seed, trained without the penalty.

| what | before | after |
| --- | --- | --- |
{rows}

`training.json` has the recipe, versions, hashes and the curve of loss and penalty.
"""
)


def card(record: dict[str, Any]) -> str:
    """The model card, in Markdown, from the training record."""
    before, after = record["scores"]["before"], record["scores"]["after"]
    given = sentences(HELD_OUT + record["seed"], before["sentences"])
    lengths = [len(s.words) for s in given]
    rows = "\n".join(
        f"| {what} | {pair(before[key])} | {pair(after[key])} |"
        for what, key in (
            ("accuracy", "accuracy"),
            ("attention on the name, mean of all heads", "attention_mean"),
            ("attention on the name, largest head", "attention_largest_head"),
        )
    )
    recipe = record["recipe"]
    return CARD.format(
        **{k: recipe[k] for k in ("layers", "heads", "d_model", "penalty")},
        **{k: record[k] for k in ("seed", "seconds", "threads", "vocab", "parameters")},
        words=f"{min(lengths)} to {max(lengths)}",
        example=given[0].text,
        sentences=before["sentences"],
        uniform=pair(before["uniform_attention"]),
        rows=rows,
    )


def main() -> None:
    """The command line."""
    command_line("Train the model that hides its reason.", partial(train, Recipe()))


if __name__ == "__main__":
    main()
