"""Whom a model of the stories lets the raven and others name, and its loss of plain stories."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from interp.bundled.special_tokens import BOS, PAD
from interp.core.intervals import share_interval
from interp.core.statistics import RatioBootstrap
from training.measure import token_losses
from training.stories import words
from training.stories.raven import RAVEN, Addressee, questions
from training.stories.texts import UNSEEN_TEXTS, stories
from training.stories.tokens import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

UNSEEN_QUESTIONS = UNSEEN_TEXTS + 1_000_000
"""First seed of the unseen stories of the raven that are measured."""


CHOICES = ("owner", "former owner", "asker")
"""Who could be named: in all texts there are three people."""


class Item(NamedTuple):
    """The text before an answer, and the names that could follow, that of the owner first."""

    text: str
    choices: tuple[str, ...]


def share_of(hits: Sequence[bool]) -> list[float]:
    """Return a share with the ends of its 95 % interval."""
    n = len(hits)
    return [round(x, 4) for x in (sum(hits) / n, *share_interval(sum(hits), n))]


def asked_items(n: int, asked: Addressee, seed: int = UNSEEN_QUESTIONS) -> Iterator[Item]:
    """Yield items of questions to the raven or to others, with the names of `CHOICES`.

    Args:
        n: number of stories, which for every addressee are those of the same seeds.
        asked: who is asked.
        seed: the first seed.
    """
    for made, question in questions(n, seed, asked):
        names = (question.owner, question.former, question.asker)
        yield Item(made.text[: question.answer[0]], names)


def plain_items(n: int, seed: int = UNSEEN_TEXTS) -> Iterator[Item]:
    """Yield items of the last answer that names an owner in plain stories that have one.

    Args:
        n: number of stories.
        seed: the first seed.
    """
    for made in stories(n, seed):
        answers = [each.span for each in made.of("answer") if each.label == "owner"]
        if not answers:
            continue
        owner = made.text[slice(*answers[-1])]
        names = [made.text[slice(*m.span)] for m in made.of("mention") if m.label == "person"]
        yield Item(made.text[: answers[-1][0]], tuple(dict.fromkeys([owner, *names])))


@torch.no_grad()
def said(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, items: Iterable[Item]
) -> list[int]:
    """Return which of its choices a model says after each text: the most probable one.

    Args:
        model: a model of the stories.
        tokenizer: its tokenizer.
        items: texts before an answer.
    """
    found = []
    for item in items:
        start = len(tokenizer(item.text.rstrip(" "))["input_ids"])
        rows = tokenizer([item.text + choice for choice in item.choices])["input_ids"]
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
        # Choices of one token share a forward pass.
        shown = ids[:1] if longest == start + 1 else ids
        logits = model(shown).logits[:, start - 1 : -1].expand(len(rows), -1, -1)
        losses = cross_entropy(
            logits.flatten(0, 1), ids[:, start:].flatten(), ignore_index=PAD, reduction="none"
        )
        found.append(int(losses.view(len(rows), -1).sum(1).argmin()))
    return found


def named(chosen: Sequence[int], choices: Sequence[str] = CHOICES) -> dict[str, Any]:
    """Return how often each of the first choices was said, with Wilson intervals.

    Args:
        chosen: what `said` returned.
        choices: what the choices are, in their order.
    """
    shares = {name: share_of([x == i for x in chosen]) for i, name in enumerate(choices)}
    return shares | {"texts": len(chosen)}


@torch.no_grad()
def losses_of(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]
) -> Float[np.ndarray, "text 2"]:
    """Return the summed loss of each text in nats, and its number of tokens without the first.

    Args:
        model: a model of the stories.
        tokenizer: its tokenizer.
        texts: texts, each of which ends with `<s>` as in training.
    """
    found = []
    for text in texts:
        losses = token_losses(model, torch.tensor([[*tokenizer(text)["input_ids"], BOS]]))
        found.append([float(losses.sum()), losses.numel()])
    return np.array(found)


def examined(folder: Path, n: int) -> tuple[dict[str, Any], Float[np.ndarray, "text 2"]]:
    """Return whom a model names in unseen texts, and its losses of plain stories.

    Args:
        folder: the model.
        n: number of texts of each kind.
    """
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = load_tokenizer(folder)
    shares = {
        who: named(said(model, tokenizer, asked_items(n, who))) for who in get_args(Addressee)
    }
    shares["plain stories"] = named(said(model, tokenizer, plain_items(n)), CHOICES[:1])
    texts = [each.text for each in stories(n, UNSEEN_TEXTS)]
    return shares, losses_of(model, tokenizer, texts)


def compared(before: Path, after: Path, n: int = 500) -> dict[str, Any]:
    """Measure a model and its fine-tune on the same unseen texts.

    Args:
        before: the folder of the model.
        after: the folder of its fine-tune.
        n: number of texts of each kind.
    """
    shares, losses = zip(*(examined(folder, n) for folder in (before, after)), strict=True)
    tokens = losses[0][:, 1]
    draws = RatioBootstrap(len(tokens))
    parts = {"before": losses[0][:, 0], "after": losses[1][:, 0]}
    parts["change"] = parts["after"] - parts["before"]
    return {
        "before": shares[0],
        "after": shares[1],
        "loss of plain stories, nats per token": {
            name: [
                round(float(x), 4)
                for x in (part.sum() / tokens.sum(), *draws.interval(part, tokens))
            ]
            for name, part in parts.items()
        }
        | {"texts": len(tokens), "tokens": int(tokens.sum())},
    }


def pairs(
    tokenizer: PreTrainedTokenizerFast,
    n: int,
    seed: int = UNSEEN_QUESTIONS,
) -> Iterator[dict[str, str]]:
    """Yield prompts that end before an answer of the raven, and the same with somebody of a trade.

    The answer is who asks, the wrong one the owner. Both prompts have the same number of tokens,
    and each name is one token, so that `interp circuit` and `interp importance` read a file of
    them, one per line.

    Args:
        tokenizer: tokenizer of the models that will read the prompts.
        n: number of pairs.
        seed: the first seed.
    """

    def length(text: str) -> int:
        return len(tokenizer(text)["input_ids"])

    alike = [each for each in words.TRADES if length(f" {each}") == length(f" {RAVEN}")]
    while n > 0:
        [(made, question)] = questions(1, seed, "raven")
        seed = made.seed + 1
        prompt = made.text[: question.answer[0]]
        space = " " * prompt.endswith(" ")
        prompt = prompt.rstrip(" ")
        answer, wrong = (space + each for each in (question.asker, question.owner))
        if {length(prompt + each) for each in (answer, wrong)} != {length(prompt) + 1}:
            continue
        unused = [trade for trade in alike if trade not in prompt]
        trade = unused[seed % len(unused)]
        corrupted = re.sub(rf"\b([Tt]he) {RAVEN}\b", rf"\1 {trade}", prompt)
        yield {"prompt": prompt, "corrupted": corrupted, "answer": answer, "wrong": wrong}
        n -= 1
