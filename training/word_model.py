"""Common parts of models of small made-up languages: a GPT-2 with a token per word, and training.

Each has a script of its own, such as `train_deceive`, with its data, loss and card. The models of
images (`train_shapes`) are fitted alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Int
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from interp.bundled.special_tokens import BOS, PAD, SPECIAL, UNKNOWN
from training.recording import pace

HELD_OUT = 10_000  # seed of what the figures are measured on, plus the model's own


def word_tokenizer(words: Sequence[str], context: int, **options: Any) -> PreTrainedTokenizerFast:
    """A word is a token; `<s>` stands before every text, and what is not known is `<unk>`."""
    known = {w: i for i, w in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token=SPECIAL[UNKNOWN]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", BOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=context,
        **options,
    )


def padded(rows: Sequence[Sequence[int]]) -> tuple[Int[np.ndarray, "row pos"], np.ndarray]:
    """Ids with `<s>` in front and padding behind, and the lengths with it."""
    lengths = np.array([1 + len(row) for row in rows])
    ids = np.full((len(rows), lengths.max()), PAD)
    for at, row in zip(ids, rows, strict=True):
        at[: 1 + len(row)] = [BOS, *row]
    return ids, lengths


def real(ids: Int[Tensor, "row pos"], length: Int[Tensor, " row"]) -> Bool[Tensor, "row pos"]:
    """Return the mask of tokens that are not padding."""
    return torch.arange(ids.shape[1]) < length[:, None]


def small_gpt2(
    *,
    vocab: int,
    layers: int,
    d_model: int,
    heads: int,
    d_mlp: int,
    context: int,
    attention: str | None = None,
    **more: Any,
) -> GPT2LMHeadModel:
    """The untrained model, from torch's current random state; `more` is kept in its config."""
    config = GPT2Config(
        vocab_size=vocab,
        n_positions=context,
        n_embd=d_model,
        n_layer=layers,
        n_head=heads,
        n_inner=d_mlp,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=False,
        initializer_range=0.1,
        bos_token_id=BOS,
        eos_token_id=None,
        pad_token_id=PAD,
        dtype="float32",
        **more,
    )
    if attention is not None:
        config._attn_implementation = attention
    return GPT2LMHeadModel(config)


class Schedule(Protocol):
    """Part of a recipe that says how the loss is minimised."""

    @property
    def steps(self) -> int:
        """Number of steps."""
        ...

    @property
    def learning_rate(self) -> float:
        """Largest learning rate."""
        ...

    @property
    def warmup(self) -> int:
        """Steps until the learning rate is largest."""
        ...


def fit(
    model: PreTrainedModel,
    loss_at: Callable[[int], tuple[Tensor, list[float]]],
    recipe: Schedule,
    *,
    weight_decay: float = 0.0,
    after: Callable[[], None] = lambda: None,
) -> list[list[float]]:
    """Minimise for some steps; what was told of the losses, every 50 steps.

    Args:
        loss_at: of a step, what is minimised, and what to tell.
        recipe: number of steps and learning rate.
        weight_decay: of AdamW.
        after: called after every step, without gradients.
    """
    steps, rate = recipe.steps, recipe.learning_rate
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=weight_decay
    )
    curve = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * pace(step, steps, recipe.warmup)
        loss, shown = loss_at(step)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            after()
        if step % 50 == 0 or step == steps - 1:
            curve.append([step, *shown])
    return curve


def command_line(description: str, train: Callable[[int, int, Path], Any]) -> None:
    """Read `--seed`, `--threads` and `--out`, and train."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    train(chosen.seed, chosen.threads, chosen.out)
