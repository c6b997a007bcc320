"""Attention between words from attention between pieces, for every head and sentence.

Special tokens are dropped without renormalising the rows; a word's attention to itself is set to
zero, since no word is its own head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.model.each_batch import each_batch
from interp.model.model_argument import takes_model
from interp.syntax.align import Aligned, By, align, how
from interp.syntax.treebank import Sentence, Treebank

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model

Join = Literal["sum", "mean", "first", "max"]
JOINS = ("sum", "mean", "first", "max")
Array = np.ndarray
_COUNTED = (
    "sentences",
    "read",
    "words",
    "words_in_pieces",
    "single_words",
    "too_long",
    "without_pieces",
    "words_without_pieces",
    "text_differs",
)
_TOKENS = 4096  # maximum pieces in one batch, padding included


@dataclass(frozen=True, eq=False)
class WordAttention:
    """Word-level attention of every head on every sentence that could be read.

    Args:
        sentences: the sentences that were read, in the treebank's order.
        values: per sentence `[head, word, word]`; rows are the attending words.
        heads: name of every head on that axis, with its stack if there are several.
        places: stack, layer, head of each.
    """

    sentences: tuple[Sentence, ...]
    values: tuple[Float[Array, "head word word"], ...]
    heads: tuple[str, ...]
    places: tuple[tuple[str, int, int], ...]
    counts: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sentences)


@dataclass(frozen=True)
class WordReading:
    """Options for joining pieces to words, reported with every result.

    Args:
        to: how attention to the pieces of a word is joined; by default the sum, since mass adds up.
        attending: how the rows of a word's pieces are joined; by default the mean, so that rows
            still sum to at most 1.
        pieces: see `interp.syntax.align.how`.
        shuffled: seed of a control in which the model reads the words in random order; attention is
            mapped back to the original order.
    """

    to: Join = "sum"
    attending: Join = "mean"
    pieces: By = "auto"
    shuffled: int | None = None

    def __post_init__(self) -> None:
        for name in ("to", "attending"):
            if getattr(self, name) not in JOINS:
                raise OptionError(
                    f"{name}={getattr(self, name)!r}is not known; use one of {', '.join(JOINS)}"
                )


@takes_model
def word_attention(
    model: Model,
    treebank: Treebank | Sequence[Sentence],
    reading: WordReading | None = None,
    *,
    stack: str | None = None,
    progress: Progress | None = None,
) -> WordAttention:
    """Run the model over all sentences, batched by length, and join its pieces to words.

    Cross attention is excluded, since its rows and columns are different texts. Memory: one number
    per head and pair of words.
    """
    reading = reading or WordReading()
    by = how(model, reading.pieces)
    sites = [s for s in model.sites if stack in (None, s.stack) and s.stack != "cross"]
    if not sites:
        raise OptionError(f"{model.name} has the stacks {', '.join(model.stacks)}, not {stack!r}")
    readable, counts = _readable(model, list(treebank), by, reading)
    if not readable:
        raise PromptError(
            f"none of {counts['sentences']} sentences could be read: {counts['too_long']} too long"
            f" for {model.name}, {counts['without_pieces']} with words without pieces,"
            f" {counts['text_differs']} with a text that differs from their words"
        )
    several = len({s.stack for s in sites}) > 1
    places = [(s.stack, s.layer, h) for s in sites for h in range(s.n_heads)]
    names = [f"L{layer}H{h}" + (f" {stack}" if several else "") for stack, layer, h in places]
    values: list[Array | None] = [None] * len(readable)
    done = 0

    def run(batch: Sequence[int]) -> None:
        nonlocal done
        rows = _run(model, sites, [readable[i] for i in batch], reading)
        for at, weights in zip(batch, rows, strict=True):
            values[at] = weights
        done += len(batch)
        if progress is not None:
            progress(model.name, done, len(readable))

    lengths = [len(a.ids) for _, a, _ in readable]
    each_batch(model, _batches(lengths), run, lambda batch: sum(lengths[i] for i in batch))
    sentences = tuple(s for s, _, _ in readable)
    # every sentence was in a batch, so all values are set
    read = tuple(v for v in values if v is not None)
    return WordAttention(sentences, read, tuple(names), tuple(places), counts)


def _readable(
    model: Model, sentences: list[Sentence], by: Literal["words", "offsets"], reading: WordReading
) -> tuple[list[tuple[Sentence, Aligned, Array]], dict[str, int]]:
    """Return the readable sentences with their pieces and reading order."""
    counts: dict[str, int] = dict.fromkeys(_COUNTED, 0)
    rng = None if reading.shuffled is None else np.random.default_rng(reading.shuffled)
    limit = min((x for x in (model.limit, _tokenizer_limit(model)) if x is not None), default=None)
    readable = []
    for sentence in sentences:
        counts["sentences"] += 1
        if len(sentence) < 2:  # no edge
            counts["single_words"] += 1
            continue
        order = np.arange(len(sentence)) if rng is None else rng.permutation(len(sentence))
        aligned = align(model, sentence if rng is None else _ordered(sentence, order), by)
        if aligned is None:
            counts["text_differs"] += 1
            continue
        missing = aligned.missing(len(sentence))
        if missing:
            counts["without_pieces"] += 1
            counts["words_without_pieces"] += len(missing)
        elif limit is not None and len(aligned.ids) > limit:
            counts["too_long"] += 1
        else:
            counts["words"] += len(sentence)
            pieces = np.bincount([w for w in aligned.words if w >= 0], minlength=len(sentence))
            counts["words_in_pieces"] += int((pieces > 1).sum())
            readable.append((sentence, aligned, order))
    counts["read"] = len(readable)
    return readable, counts


def _tokenizer_limit(model: Model) -> int | None:
    limit = getattr(model.tokenizer, "model_max_length", None)
    # otherwise a huge placeholder value
    return limit if isinstance(limit, int) and limit < 10**9 else None


def _ordered(sentence: Sentence, order: Array) -> Sentence:
    """Return the same words in another order, as a text with spaces."""
    words = tuple(sentence.words[i] for i in order)
    starts = np.cumsum([0, *(len(w) + 1 for w in words[:-1])])
    spans = tuple((int(a), int(a) + len(w)) for a, w in zip(starts, words, strict=True))
    return replace(sentence, words=words, text=" ".join(words), spans=spans, multiword=())


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[i] > _TOKENS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _run(
    model: Model,
    sites: Sequence[Site],
    batch: Sequence[tuple[Sentence, Aligned, Array]],
    reading: WordReading,
) -> list[Array]:
    wanted = set(sites)
    by_site: dict[Site, list[Array]] = {}
    prompts = Prompts(tuple(a.ids for _, a, _ in batch), "sentences")

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site not in wanted:
            return
        model.require_finite(call, site)
        pattern = call.pattern(slice(None)).float()
        rows = []
        for i, (sentence, aligned, _) in enumerate(batch):
            at = torch.tensor(aligned.words, device=pattern.device)
            here = real[i].nonzero().flatten()
            inside = pattern[i][:, here][:, :, here]
            rows.append(words_of(inside, at, len(sentence), reading).cpu().numpy())
        by_site[site] = rows

    model.read(prompts, visit)
    out = []
    for i, (_, _, order) in enumerate(batch):
        value = np.concatenate([by_site[site][i] for site in sites])
        back = np.empty_like(value)
        back[:, order[:, None], order[None, :]] = value
        out.append(back)
    return out


def words_of(
    pattern: Float[Tensor, "head query_pos key_pos"],
    words: Tensor,
    n_words: int,
    reading: WordReading,
) -> Float[Tensor, "head word word"]:
    """Join attention between pieces to attention between words, given the word of each piece."""
    in_words = words >= 0
    pattern, words = pattern[:, in_words][:, :, in_words], words[in_words]
    received = _join(pattern, words, n_words, reading.to)
    joined = _join(received.transpose(1, 2), words, n_words, reading.attending).transpose(1, 2)
    joined = joined.contiguous()
    joined.diagonal(dim1=1, dim2=2).zero_()
    return joined


def _join(x: Tensor, words: Tensor, n_words: int, join: Join) -> Tensor:
    """Join the last axis from pieces to words."""
    reduce = {"sum": "sum", "mean": "mean", "max": "amax"}.get(join)
    if reduce is None:
        order = torch.arange(len(words), device=words.device)
        first = torch.full((n_words,), len(words), device=words.device)
        return x[..., first.scatter_reduce(0, words, order, "amin")]
    index = words.expand(*x.shape[:-1], -1)
    empty = x.new_zeros(*x.shape[:-1], n_words)
    return empty.scatter_reduce(-1, index, x, reduce, include_self=False)
