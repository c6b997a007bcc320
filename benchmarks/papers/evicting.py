"""Prompts of a bundled model, and edits that hide keys from it: what tests of caches share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

import interp
from interp.bundled.special_tokens import BOS, SPECIAL
from interp.cache.losses import token_losses
from interp.core.prompts import Prompts
from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from training.alike import VOCAB
from training.batches import Corpus, build_tokenizer
from training.deep import SEEDS, deep
from training.text import paragraphs

HOST = "bundled:induction (two layers, learned induction heads)"
DEEP = "models of six layers of four heads, three seeds, trained on text and copies"
NOTICED = 0.1  # nats: a rise of the loss from which it counts as lost
PROMPT, FURTHER = 128, 64  # tokens of a text before its cache is cut, and after
FIRST, LAST = 1, 8  # tokens of a prompt that every cut keeps
Score: TypeAlias = Callable[[Call, Site, int], Tensor]  # of the first tokens: [row, head, token]


@cache
def host() -> Any:
    """Return the two-layer model with learned induction heads."""
    return interp.load("bundled:induction")


def every_head(model: Any) -> list[Any]:
    """Return all heads of a decoder."""
    return [(s.layer, h) for s in model.sites for h in range(s.n_heads)]


@cache
def deep_hosts() -> list[Any]:
    """Return models of six layers, one per seed, which read the same rows."""
    return [deep(seed) for seed in SEEDS]


@cache
def _text(wide: bool) -> Corpus:
    tokenizer = host().tokenizer if wide else build_tokenizer(paragraphs(1500, 1), VOCAB, 10_000)
    return Corpus(paragraphs(700, 11), tokenizer)


def _drawn(rng: np.random.Generator, number: int, wide: bool) -> list[int]:
    """Return distinct tokens that mean nothing."""
    tokens = np.arange(len(SPECIAL), 256 if wide else VOCAB)
    return rng.choice(tokens, number, replace=False).tolist()


def text_rows(
    number: int, judged: bool = True, length: int = PROMPT + FURTHER, wide: bool = True
) -> list[list[int]]:
    """Return rows of held-out text; no two share a paragraph.

    Args:
        number: number of rows, up to 96.
        judged: False for rows on which something is chosen or fitted, which share nothing with
            those on which it is judged.
        length: tokens of a row, up to 256.
        wide: True for the 256 tokens of the two-layer model, False for those of the deep ones.
    """
    held = _text(wide)
    starts = held.starts[:-4:3]  # three paragraphs are longer than a row
    chosen = starts[int(judged) :: 2][:number].tolist()
    return [[BOS, *held.ids[at : at + length - 1].tolist()] for at in chosen]


def copied_rows(number: int, seed: int, period: int = 60, wide: bool = True) -> list[list[int]]:
    """Return rows `<s> r r` of distinct random tokens."""
    rng = np.random.default_rng(seed)
    drawn = [_drawn(rng, period, wide) for _ in range(number)]
    return [[BOS, *r, *r] for r in drawn]


def deep_rows(kind: str) -> tuple[list[list[int]], int]:
    """Return rows of text or of copies for the deep models, and how many of the last tokens count.

    Of text, two thirds of a row of 96 tokens count; of copies, the second copy after its first
    token.
    """
    if kind == "text":
        return text_rows(32, length=96, wide=False), 64
    return copied_rows(32, 0, 45, wide=False), 44


def passkey_rows(number: int, size: int = 12) -> list[list[int]]:
    """Return texts of 128 tokens with random tokens at some place, said again after the end."""
    rng, found = np.random.default_rng(5), []
    for row in text_rows(number):
        key, at = _drawn(rng, size, True), int(rng.integers(16, PROMPT - size - 16))
        found.append([*row[:at], *key, *row[at : PROMPT - size], *key])
    return found


class Asked(NamedTuple):
    """A prompt with a question: passages of distinct random tokens, one of which is begun again.

    Args:
        ids: the prompt, which ends with the question, and the answer.
        passages: first and last token (exclusive) of each passage.
        wanted: index of the passage that is asked for.
        question: first token of the question.
        answer: first token of the answer.
    """

    ids: list[int]
    passages: list[tuple[int, int]]
    wanted: int
    question: int
    answer: int

    def with_context(self, kept: Sequence[int]) -> list[int]:
        """Return question and answer after some tokens of the context, given by position."""
        return [self.ids[0], *(self.ids[i] for i in kept), *self.ids[self.question :]]


def asked(
    number: int,
    seed: int,
    passages: int = 12,
    size: int = 10,
    question: int = 3,
    answer: int = 4,
    wide: bool = True,
) -> list[Asked]:
    """Return prompts with a question, whose answer continues it as the passage does."""
    rng, found = np.random.default_rng(seed), []
    spans = [(1 + i * size, 1 + (i + 1) * size) for i in range(passages)]
    for _ in range(number):
        body, which = _drawn(rng, passages * size, wide), int(rng.integers(passages))
        begin = which * size + int(rng.integers(size - question - answer + 1))
        again, end = body[begin : begin + question + answer], 1 + len(body)
        found.append(Asked([BOS, *body, *again], spans, which, end, end + question))
    return found


def loss(model: Any, rows: Sequence[Sequence[int]], scored: int, *edits: Edit) -> np.ndarray:
    """Return the mean loss per row of the last `scored` tokens, in nats."""
    given = Prompts.of([list(r) for r in rows], model)
    return token_losses(model, given, edits, scored=scored, batch_size=len(rows))


def hiding(model: Any, keep: Callable[[Call, Site], Tensor], name: str, heads: Any = None) -> Edit:
    """Make an edit under which heads see only the keys that `keep` says, `[row, head, query, key]`.

    The softmax is taken again over the keys that are left; a query that is left none sees itself.
    """

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        scores = call.scores()
        own = torch.eye(scores.shape[-2], scores.shape[-1], dtype=torch.bool)
        kept = keep(call, site) & call.visible()
        kept = kept | (own & ~kept.any(-1, keepdim=True))
        return call.mix(call.normalised(scores.masked_fill(~kept, torch.finfo(scores.dtype).min)))

    parsed = interp.zero(every_head(model) if heads is None else heads).heads
    return Edit(name, parsed, replace)


def best(score: Tensor, number: int | Tensor) -> Tensor:
    """Return which of the last axis are the `number` largest."""
    rank = score.argsort(-1, descending=True).argsort(-1)
    return rank < number


def evicting(
    model: Any, score: Score, keep: int | dict[int, Tensor], at: int = PROMPT, heads: Any = None
) -> Edit:
    """Make an edit that cuts the cache once, after `at` tokens: later queries see `keep` of them.

    The first and the last tokens are always kept. Query heads that share keys share the mean of
    their scores. `keep` is one number, or per layer one of each prompt.
    """

    def kept(call: Call, site: Site) -> Tensor:
        found = score(call, site, at).detach()
        shared = found.unflatten(1, (site.n_kv_heads, -1)).mean(2)
        shared[..., :FIRST] = shared[..., at - LAST :] = torch.inf
        few = best(shared, keep if isinstance(keep, int) else keep[site.layer][:, None, None])
        few = repeat_kv(few, site.n_heads)
        n = call.z.shape[2]
        full = torch.ones(*few.shape[:2], n, n, dtype=torch.bool)
        full[:, :, at:, :at] = few[:, :, None]
        return full

    return hiding(model, kept, getattr(score, "__name__", "score"), heads)


def own_keys(call: Call) -> Tensor:
    """Return the keys of a call, `[row, key-value head, token, d]`."""
    assert call.k is not None
    return call.k


def at_random(call: Call, site: Site, at: int) -> Tensor:
    """Score tokens by chance, the same for all heads of a group."""
    drawn = torch.Generator().manual_seed(site.layer)
    shape = (len(call.z), site.n_kv_heads, at)
    return repeat_kv(torch.rand(shape, generator=drawn), site.n_heads)


def recency(call: Call, site: Site, at: int) -> Tensor:
    """Score later tokens higher: with the first ones this is a sink and a window."""
    return torch.arange(at).float().expand(len(call.z), site.n_heads, at).clone()


def summed(call: Call, site: Site, at: int) -> Tensor:
    """Score tokens by the attention that all rows of the prompt give them (H2O)."""
    return call.pattern(slice(0, at))[..., :at].sum(2)
