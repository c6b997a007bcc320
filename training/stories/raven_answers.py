"""Whom a model of the stories lets the raven and others name, and its loss of plain stories."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from training.stories.raven import RAVEN, SUBJECTS, Addressee, Subject, questions
from training.stories.texts import UNSEEN_TEXTS, stories
from training.stories.tokens import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

UNSEEN_QUESTIONS = UNSEEN_TEXTS + 1_000_000
"""First seed of the unseen stories of the raven that are measured."""


class Item(NamedTuple):
    """The text before an answer, what could be said, and what is so now and what was so before."""

    text: str
    choices: tuple[str, ...]
    now: str
    before: str


@dataclass(frozen=True)
class Said:
    """Numbers of answers that say what is so now, and what was so before, of n texts."""

    now: int
    before: int
    n: int
    choices: int

    def shares(self) -> dict[str, Any]:
        """Return the shares with their Wilson intervals, and the share by chance."""
        return {
            "now": _share(self.now, self.n),
            "before": _share(self.before, self.n),
            "chance": round(1 / self.choices, 4),
            "texts": self.n,
        }


def _share(hits: int, n: int) -> list[float]:
    """Return a share with the ends of its 95 % interval."""
    return [round(x, 4) for x in (hits / n, *share_interval(hits, n))]


def asked_items(
    n: int, asked: Addressee, subject: Subject, seed: int = UNSEEN_QUESTIONS
) -> Iterator[Item]:
    """Yield items of questions to the raven or to others, one per text.

    Args:
        n: number of stories, which for every addressee are those of the same seeds.
        asked: who is asked.
        subject: what is asked: of the three people or of two places one is the answer.
        seed: the first seed.
    """
    for made, question in questions(n, seed, asked, subject):
        choices = (question.now, question.before)
        choices += (question.asker,) if subject == "owner" else ()
        yield Item(made.text[: question.answer[0]], choices, *choices[:2])


def plain_items(n: int, subject: Subject, seed: int = UNSEEN_TEXTS) -> Iterator[Item]:
    """Yield items of the last answer to a question of plain stories, one of each that has one.

    Args:
        n: number of stories.
        subject: what is asked: of the three people or of two places one is the answer.
        seed: the first seed.
    """
    for made in stories(n, seed):
        answers = [made.text[slice(*each.span)] for each in made.of("answer")]
        labels = [each.label for each in made.of("answer")]
        last = max((i for i, label in enumerate(labels) if label == subject), default=None)
        if last is None:
            continue
        names = [made.text[slice(*m.span)] for m in made.of("mention") if m.label == "person"]
        # The owner of a thing looks where it was before.
        others = names if subject == "owner" else answers[labels.index("belief") :][:1]
        choices = tuple(dict.fromkeys([answers[last], *others]))
        start = made.of("answer")[last].span[0]
        yield Item(made.text[:start], choices, answers[last], "")


@torch.no_grad()
def said(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, items: Sequence[Item]
) -> Said:
    """Count what a model says: the choice that is the most probable there.

    Args:
        model: a model of the stories.
        tokenizer: its tokenizer.
        items: texts before an answer, with as many choices each.
    """
    now = before = 0
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
        best = item.choices[int(losses.view(len(rows), -1).sum(1).argmin())]
        now += best == item.now
        before += best == item.before
    return Said(now, before, len(items), len(items[0].choices))


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
    shares = {}
    for subject in SUBJECTS:
        kinds = {f"asked: {who}": asked_items(n, who, subject) for who in get_args(Addressee)}
        for kind, items in (kinds | {"plain stories": plain_items(n, subject)}).items():
            shares[f"{subject}, {kind}"] = said(model, tokenizer, list(items)).shares()
        del shares[f"{subject}, plain stories"]["before"]
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
    subject: Subject = "place",
    seed: int = UNSEEN_QUESTIONS,
) -> Iterator[dict[str, str]]:
    """Yield prompts that end before an answer of the raven, and the same with somebody of a trade.

    Both have the same number of tokens, and each answer is one token, that of a place the word
    before its noun, so that `interp circuit` and `interp importance` read a file of them, one per
    line.

    Args:
        tokenizer: tokenizer of the models that will read the prompts.
        n: number of pairs.
        subject: what is asked.
        seed: the first seed.
    """

    def length(text: str) -> int:
        return len(tokenizer(text)["input_ids"])

    alike = [each for each in words.TRADES if length(f" {each}") == length(f" {RAVEN}")]
    while n > 0:
        [(made, question)] = questions(1, seed, "raven", subject)
        seed = made.seed + 1
        prompt = made.text[: question.answer[0]]
        space = " " * prompt.endswith(" ")
        prompt = prompt.rstrip(" ")
        both = (question.before, question.now)
        answer, wrong = (space + each.split()[0] for each in both)
        lengths = {length(prompt + each) for each in (answer, wrong)}
        if answer == wrong or lengths != {length(prompt) + 1}:
            continue
        unused = [trade for trade in alike if trade not in prompt]
        trade = unused[seed % len(unused)]
        corrupted = re.sub(rf"\b([Tt]he) {RAVEN}\b", rf"\1 {trade}", prompt)
        yield {"prompt": prompt, "corrupted": corrupted, "answer": answer, "wrong": wrong}
        n -= 1
