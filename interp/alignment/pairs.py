"""Sentence pairs as a model reads them: tokens of source and target, and the word of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp.alignment.pair_file import (
    SentencePair,
    SentenceSide,
    sentence_pair,
    side_words,
)
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.tokens import encoded_text

if TYPE_CHECKING:
    from interp.model.model import Model

NO_WORD = -1


@dataclass(frozen=True)
class EncodedPairs:
    """Sentence pairs as token ids of one model.

    Row r of the decoder reads the r-th decoder token and predicts the r-th label: the decoder reads
    a start token and then the labels, without the last end token.

    Args:
        pairs: the sentences with their gold alignments.
        prompts: the sources, with the decoder inputs as `prompts.decoder`.
        labels: the ids that each row should predict; shorter than the decoder input by one where
            a target is given as ids without an end token.
        source_words: the word of each source token; -1 for special tokens.
        label_words: the word of each label; -1 for special tokens.
    """

    pairs: tuple[SentencePair, ...]
    prompts: Prompts
    labels: tuple[tuple[int, ...], ...]
    source_words: tuple[tuple[int, ...], ...]
    label_words: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.pairs)

    def part(self, which: Sequence[int]) -> EncodedPairs:
        """Return some of the pairs."""
        labels, source, target = (
            tuple(x[i] for i in which) for x in (self.labels, self.source_words, self.label_words)
        )
        pairs = tuple(self.pairs[i] for i in which)
        return EncodedPairs(pairs, self.prompts.part(which), labels, source, target)


def encode_pairs(model: Model, pairs: Any) -> EncodedPairs:
    """Return sentence pairs as one model reads them.

    Args:
        model: an encoder-decoder model.
        pairs: `SentencePair`s, mappings with the same fields, tuples `(source, target)`, or pairs
            that are already encoded. Texts go through the model's tokenizer; token ids are used as
            they are, each as a word.

    Raises:
        OptionError: the model has no cross attention.
        PromptError: there are no pairs, a side is empty or longer than the model's context, or
            texts are given for a model without a tokenizer.
    """
    require_cross(model)
    if isinstance(pairs, EncodedPairs):
        pairs.prompts.check(model)
        return pairs
    parsed = [_one(i, pair) for i, pair in enumerate(pairs)]
    if not parsed:
        raise PromptError("no sentence pairs given")
    start = getattr(model.config, "decoder_start_token_id", None)
    if start is None:
        start = getattr(model.config, "bos_token_id", None)
    if start is None:
        raise PromptError(
            f"the config of {model.name} has no decoder_start_token_id, so its decoder's first "
            "token is unknown; set it in the config"
        )
    end = _ends(model)
    sources = [_tokens(model, pair.source, target=False) for pair in parsed]
    targets = [_tokens(model, pair.target, target=True) for pair in parsed]
    read = tuple((start, *(ids[:-1] if ids[-1] in end else ids)) for ids, _ in targets)
    prompts = Prompts(
        tuple(ids for ids, _ in sources), "sentence pairs", decoder=Prompts(read, "targets")
    )
    prompts.check(model)
    return EncodedPairs(
        tuple(parsed),
        prompts,
        tuple(ids for ids, _ in targets),
        tuple(words for _, words in sources),
        tuple(words for _, words in targets),
    )


def require_cross(model: Model) -> None:
    """Raise OptionError if a model has no cross attention."""
    if "cross" not in model.stacks:
        raise OptionError(
            f"{model.name} ({model.kind}) has no cross attention; give an encoder-decoder model, "
            "such as bundled:reorder"
        )


def _one(at: int, pair: Any) -> SentencePair:
    if isinstance(pair, SentencePair):
        return pair
    try:
        if isinstance(pair, Mapping):
            return sentence_pair(pair)
        if isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2:
            sides = (x if isinstance(x, str) else [*x] for x in pair)
            return sentence_pair(dict(zip(("source", "target"), sides, strict=True)))
    except PromptError as error:
        raise PromptError(f"pair {at}: {error}") from error
    raise PromptError(f"pair {at} is not a sentence pair; give (source, target) or SentencePair")


def _ends(model: Model) -> set[Any]:
    end: Any = getattr(model.config, "eos_token_id", None)
    return set(end) if isinstance(end, list) else {end}


def _tokens(
    model: Model, side: SentenceSide, *, target: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return token ids of a side, and the word of each."""
    if not isinstance(side, str):
        special = _ends(model)
        return side, tuple(NO_WORD if t in special else i for i, t in enumerate(side))
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, so its pairs are token ids, not texts")
    return words_of_tokens(model.tokenizer, side, target=target)


def words_of_tokens(
    tokenizer: Any, text: str, *, target: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the token ids of a text and the word of each; -1 for special tokens.

    Offsets of a fast tokenizer give the word. Words are tokenised one by one with other
    tokenizers, if that gives the same tokens.
    """
    whole = {"text_target": text} if target else {"text": text}
    if getattr(tokenizer, "is_fast", False):
        encoding = encoded_text(tokenizer, **whole, return_offsets_mapping=True, verbose=False)
        ids = tuple(encoding["input_ids"])
        return ids, tuple(_word_at(text, *span) for span in encoding["offset_mapping"])
    encoding = encoded_text(tokenizer, **whole, return_special_tokens_mask=True, verbose=False)
    ids, special = tuple(encoding["input_ids"]), encoding["special_tokens_mask"]
    pieces, words = [], []
    for i, word in enumerate(side_words(text)):
        single = {"text_target": word} if target else {"text": word}
        part = encoded_text(tokenizer, **single, add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
        pieces += part
        words += [i] * len(part)
    if pieces != [t for t, beside in zip(ids, special, strict=True) if not beside]:
        raise PromptError(
            f"{type(tokenizer).__name__} splits {text!r} otherwise than its words one by one, so "
            "its tokens cannot be assigned to words; use a fast tokenizer, or give token ids"
        )
    rest = iter(words)
    return ids, tuple(NO_WORD if beside else next(rest) for beside in special)


def _word_at(text: str, start: int, end: int) -> int:
    """Return the word of a token by its characters, which may begin with the space before it."""
    letters = text[start:end]
    if not letters.strip():
        return NO_WORD
    first = start + len(letters) - len(letters.lstrip())
    return len(text[: first + 1].split()) - 1
