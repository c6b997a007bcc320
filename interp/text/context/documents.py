"""Documents of simple English sentences in which one sentence holds the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interp.core.errors import OptionError, PromptError
from interp.heads.needle.sentences import FILLER, FRAMES, NAMES
from interp.model.model import Model
from interp.model.model_argument import takes_model
from interp.text.chains.chain import Chain


@takes_model
def sentence_documents(
    model: Model, *, n_documents: int = 12, n_sentences: int = 10, copies: int = 1, seed: int = 0
) -> list[Chain]:
    """Make documents that tell who got what, among sentences without names.

    Each tells of several people; the prompt ends with the beginning of one of these sentences, and
    the answer is its name. The other people's sentences have the same form and are no sources.

    Args:
        model: the model, whose tokenizer is used.
        n_documents: number of documents.
        n_sentences: sentences per document.
        copies: times that the source is told.
        seed: seed of names, events and order.

    Raises:
        PromptError: the model has no tokenizer, or it does not know the words.
        OptionError: the sizes leave no room.
    """
    others = max(1, n_sentences // 4)
    if n_documents < 1 or copies < 1 or n_sentences < copies + others + 1 or others >= len(FRAMES):
        raise OptionError(
            f"n_documents={n_documents}, n_sentences={n_sentences}, copies={copies}: all must be "
            f"at least 1, with room for {others} sentences about other people and one more"
        )
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer; use linked_chains, which needs none")
    documents = []
    for number in range(n_documents):
        rng = np.random.default_rng((seed, number))
        frames = rng.choice(len(FRAMES), others + 1, replace=False)
        names = rng.choice(len(NAMES), others + 1, replace=False)
        parts = [FRAMES[f][0].format(NAMES[n]) for f, n in zip(frames, names, strict=True)]
        hay = [FILLER[i % len(FILLER)] for i in rng.permutation(max(len(FILLER), n_sentences))]
        lines = parts[:1] * copies + parts[1:]
        lines += hay[: n_sentences - len(lines)]
        order = rng.permutation(n_sentences)
        text = " ".join(lines[i] for i in order)
        spans, at = [], 0
        for i in order:
            spans.append((at, at + len(lines[i])))
            at += len(lines[i]) + 1
        asked = FRAMES[frames[0]][0].split(" {}")[0]
        name = NAMES[names[0]]
        chain = Chain.of_text(
            model,
            text,
            question=f" {asked}",
            answer=f" {name}",
            spans=spans,
            name=f"document {number}",
        )
        unknown = getattr(model.tokenizer, "unk_token_id", None)
        if unknown is not None and unknown in chain.prompt:
            raise PromptError(
                f"the tokenizer of {model.name} does not know the words of these documents; use "
                "linked_chains"
            )
        sources = tuple(i for i, which in enumerate(order) if which < copies)
        documents.append(replace(chain, sources=sources))
    return documents


def told_documents(
    model: Model, prompts: Sequence[Sequence[int]], places: Sequence[int], *, seed: int = 0
) -> list[Chain]:
    """Make documents of prompts whose last words ask for what is told at a place of each.

    The sentences of another prompt, about other people and things, stand before them or after.
    """
    documents, decode, rng = [], model.tokenizer.decode, np.random.default_rng(seed)
    texts = [decode(ids, skip_special_tokens=True).split(". ") for ids in prompts]
    for number, (ids, at) in enumerate(zip(prompts, places, strict=True)):
        *own, question = texts[number]
        told = decode(ids[: at + 1], skip_special_tokens=True).count(". ")
        asked = _words([question]) & _words(own)
        strangers = [x[:-1] for x in texts if not (asked | _names(own)) & (_words(x) | _names(x))]
        other = strangers[rng.integers(len(strangers))] if strangers else []
        before = int(rng.integers(2)) * len(other)
        lines = [f"{line}." for line in (other + own if before else own + other)]
        ends = np.cumsum([len(line) + 1 for line in lines]).tolist()
        chain = Chain.of_text(
            model,
            " ".join(lines),
            question=f" {question}",
            answer=f" {decode(ids[at]).strip()}",
            spans=[(end - len(line) - 1, end - 1) for line, end in zip(lines, ends, strict=True)],
            name=f"document {number}",
        )
        documents.append(replace(chain, sources=(before + told,)))
    return documents


def _words(lines: Sequence[str]) -> set[str]:
    """Return the words of sentences that may name a thing."""
    return set(re.findall(r"[a-z]{3,}", " ".join(lines))) - {"the", "and", "was", "with", "that"}


def _names(lines: Sequence[str]) -> set[str]:
    """Return the words of sentences that may name somebody."""
    return set(re.findall(r"[A-Z][a-z]+", " ".join(lines)))
