"""Trains the model that translates words one by one, in the order that the first word names.

    python -m training.train_reorder --out interp/bundled/reorder --seed 0

takes two minutes. The aligned source word of every target word is known, so that what is found
in cross attention can be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import processors
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

from interp.bundled.reorder_text import END, WORDS, ReorderedPair, reorder_pairs
from interp.bundled.special_tokens import BOS, PAD
from training.measure import mean_and_error
from training.recording import Lesson, pair
from training.train import own_torch
from training.word_model import HELD_OUT, command_line, fit, word_tokenizer

END_ID = WORDS.index(END)
IGNORED = -100


@dataclass(frozen=True)
class Recipe:
    """Sizes of the model and of its training."""

    layers: int = 2
    d_model: int = 32
    heads: int = 2
    d_mlp: int = 64
    context: int = 24
    steps: int = 3000
    rows: int = 64
    learning_rate: float = 3e-3
    warmup: int = 100


def build_tokenizer(context: int) -> PreTrainedTokenizerFast:
    """A word is a token, and `</s>` ends every text; the decoder starts from `<s>`."""
    tokenizer = word_tokenizer(WORDS, context, eos_token=END)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, END_ID)]
    )
    return tokenizer


def build_model(recipe: Recipe) -> BartForConditionalGeneration:
    """The untrained model, from torch's current random state."""
    sizes: Any = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in (
            ("layers", recipe.layers),
            ("attention_heads", recipe.heads),
            ("ffn_dim", recipe.d_mlp),
        )
    }
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=len(WORDS),
            d_model=recipe.d_model,
            max_position_embeddings=recipe.context,
            dropout=0.0,
            init_std=0.1,
            bos_token_id=BOS,
            pad_token_id=PAD,
            eos_token_id=END_ID,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            dtype="float32",
            **sizes,
        )
    )


def _rows(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    made = np.full((len(rows), max(map(len, rows))), fill)
    for at, row in zip(made, rows, strict=True):
        at[: len(row)] = row
    return torch.from_numpy(made)


def encoded(pairs: Sequence[ReorderedPair]) -> dict[str, Tensor]:
    """Source ids and mask, decoder ids and labels."""
    place = {w: i for i, w in enumerate(WORDS)}
    source = [[*(place[w] for w in p.source), END_ID] for p in pairs]
    target = [[place[w] for w in p.target] for p in pairs]
    ids = _rows(source, PAD)
    return {
        "input_ids": ids,
        "attention_mask": (ids != PAD).long(),
        "decoder_input_ids": _rows([[BOS, *row] for row in target], PAD),
        "labels": _rows([[*row, END_ID] for row in target], IGNORED),
    }


def _train(recipe: Recipe, seed: int) -> tuple[BartForConditionalGeneration, list[list[float]]]:
    torch.manual_seed(seed)
    model = build_model(recipe)
    made = reorder_pairs(seed, recipe.rows * recipe.steps)

    def loss_at(step: int) -> tuple[Tensor, list[float]]:
        batch = encoded(made[step * recipe.rows : (step + 1) * recipe.rows])
        loss = model(**batch).loss
        return loss, [round(loss.item(), 4)]

    curve = fit(model, loss_at, recipe)
    return model.eval(), curve


@torch.no_grad()
def examine(model: BartForConditionalGeneration, seed: int, number: int = 512) -> dict[str, Any]:
    """Share of words and sentences translated right, and of each cross head's links."""
    made = reorder_pairs(HELD_OUT + seed, number)
    batch = encoded(made)
    labels = batch.pop("labels")
    model.set_attn_implementation("eager")
    out = model(**batch, output_attentions=True)
    model.set_attn_implementation("sdpa")
    right = (out.logits.argmax(-1) == labels) | (labels == IGNORED)
    scores: dict[str, Any] = {"pairs": number}
    scores["sentences_right"] = mean_and_error(right.all(-1).double().numpy())
    real = labels != IGNORED
    words = ((right & real).sum(-1) / real.sum(-1)).double().numpy()
    scores["words_right"] = mean_and_error(words)
    heads = {}
    for layer, pattern in enumerate(out.cross_attentions):
        best = pattern.argmax(-1)  # [pair, head, target]
        for head in range(best.shape[1]):
            hit = [
                np.mean([int(best[i, head, t]) == s for s, t in p.links])
                for i, p in enumerate(made)
            ]
            heads[f"cross.L{layer}H{head}"] = mean_and_error(np.array(hit))
    scores["links_found"] = heads
    return scores


def train(recipe: Recipe, seed: int, threads: int, out: Path) -> dict[str, Any]:
    """Trains the model, writes everything into `out`, returns the training record."""
    lesson = Lesson("reorder", recipe, seed, threads)
    with own_torch(seed, threads):
        model, curve = _train(recipe, seed)
        scores = examine(model, seed)
    return lesson.over(model, build_tokenizer(recipe.context), curve, scores, card, out)


CARD = """---
license: mit
language: en
library_name: transformers
pipeline_tag: text2text-generation
---

# reorder

An encoder-decoder model that translates between two made-up languages word by word, in the order
that the first source word names. The source word of every target word is known.

Trained from nothing by `python -m training.train_reorder --seed {seed}` (part of the interp
repository) in {seconds:.0f} s on {threads} thread(s) of a busy CPU.

- **Task**: `{source}` becomes `{target}`. `keep` keeps the order, `turn` reverses it, `swap` swaps
  neighbours. No word is repeated within a sentence.
- **Architecture**: `BartForConditionalGeneration`, {layers} encoder and {layers} decoder layers,
  {heads} heads, d_model {d_model}, vocabulary {vocab} words, {parameters:,} parameters, trained in
  float32 and stored in float16.
- **Use**: a model whose word alignments are known, for the analyses of cross attention. Which head
  carries them nobody put there: `interp study align bundled:reorder` measures it.
- **Licence**: MIT, weights and data.

## Scores

On {pairs} pairs of another seed, with the right target words as decoder input; mean and standard
error. The shortest sentences occur in training too, since there are few of them. A head finds a
link if, in the row that emits the target word, its largest weight is on the source word.

| what | share |
| --- | --- |
{rows}

`training.json` has the recipe, versions, hashes and the loss curve.
"""


def card(record: dict[str, Any]) -> str:
    """The model card, in Markdown, from the training record."""
    scores, recipe = record["scores"], record["recipe"]
    shown = next(p for p in reorder_pairs(HELD_OUT + record["seed"], 64) if p.source[0] == "turn")
    named = [("words right", scores["words_right"]), ("sentences right", scores["sentences_right"])]
    named += [(f"links found by {head}", found) for head, found in scores["links_found"].items()]
    return CARD.format(
        **{k: recipe[k] for k in ("layers", "heads", "d_model")},
        **{k: record[k] for k in ("seed", "seconds", "threads", "vocab", "parameters")},
        source=" ".join(shown.source),
        target=" ".join(shown.target),
        pairs=scores["pairs"],
        rows="\n".join(f"| {what} | {pair(found)} |" for what, found in named),
    )


def main() -> None:
    """The command line."""
    command_line("Train the model that translates in another order.", partial(train, Recipe()))


if __name__ == "__main__":
    main()
