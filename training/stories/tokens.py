"""Tokens of the stories: a tokenizer trained on them, and annotations carried over to tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from interp.bundled.special_tokens import BOS, SPECIAL
from interp.core.documents import parse_json, seal, unseal
from interp.core.errors import LoadError, OptionError
from interp.core.files import write_atomically
from training.stories.markup import Span
from training.stories.texts import Story, generator_hash, stories
from training.stories.world import NAMES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ORIGIN = "generator.json"
"""File beside a tokenizer with the hash of the generator of its texts."""
VOCABULARY = 2000
TEXTS = 4000


class TokenAnnotation(NamedTuple):
    """An annotation as token indices: of its span, and of each of its targets."""

    relation: str
    tokens: tuple[int, ...]
    targets: tuple[tuple[int, ...], ...]
    label: str


def on_tokens(story: Story, offsets: Sequence[Span]) -> list[TokenAnnotation]:
    """Return the annotations of a story on the tokens of any tokenizer.

    A token belongs to a span if they share a character; special tokens, whose offsets are empty,
    belong to none.

    Args:
        story: the story.
        offsets: of each token, its first character and the one after the last, as a fast tokenizer
            returns with `return_offsets_mapping=True`.
    """
    at: list[list[int]] = [[] for _ in story.text]
    for token, (start, end) in enumerate(offsets):
        for character in range(start, end):
            at[character].append(token)

    def tokens(span: Span) -> tuple[int, ...]:
        return tuple(dict.fromkeys(token for i in range(*span) for token in at[i]))

    return [
        TokenAnnotation(a.relation, tokens(a.span), tuple(tokens(t) for t in a.targets), a.label)
        for a in story.annotations
    ]


def train_tokenizer(
    n: int = TEXTS, seed: int = 0, vocabulary: int = VOCABULARY
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer, which reads any text and puts `<s>` before it.

    Args:
        n: number of stories.
        seed: seed of the first story.
        vocabulary: number of tokens, with the 256 bytes and the special tokens.

    Raises:
        OptionError: a name of a person would be several tokens.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.BPE())
    marks = pre_tokenizers.Split(Regex(' ?["()]'), "isolated")  # each is a token of its own
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.pre_tokenizer = pre_tokenizers.Sequence([marks, words])  # type: ignore[assignment]
    bare.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # type: ignore[call-arg]
    bare.train_from_iterator((each.text for each in stories(n, seed)), trainer)
    bare.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", BOS)]
    )
    split = [n for n, _ in NAMES if len(bare.encode(f" {n}", add_special_tokens=False).ids) > 1]
    if split:
        raise OptionError(
            f"{vocabulary} tokens trained on {n} texts are too few for {len(split)} of "
            f"{len(NAMES)} names, such as {split[0]}, which would be several tokens; give a larger "
            f"vocabulary, such as {VOCABULARY}, or more texts, such as {TEXTS}"
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=bare, bos_token="<s>", pad_token="<pad>", unk_token="<unk>"
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write a tokenizer into a folder, with the hash of the generator beside it."""
    tokenizer.save_pretrained(folder)
    origin = seal({"generator": generator_hash()})
    write_atomically(folder / ORIGIN, json.dumps(origin, indent=1).encode())


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Read a tokenizer that was trained on the texts of this generator.

    Raises:
        LoadError: the generator was changed since, or the folder does not say which one it was.
    """
    from transformers import PreTrainedTokenizerFast

    again = "train the tokenizer again with `python -m training.stories tokenizer`"
    try:
        origin = unseal(parse_json((folder / ORIGIN).read_bytes()))["generator"]
    except (OSError, ValueError, KeyError) as error:
        raise LoadError(
            f"{folder} does not say which generator its tokenizer was trained on: {error}; {again}"
        ) from error
    if origin != generator_hash():
        raise LoadError(
            f"the tokenizer in {folder} was trained on texts of another generator "
            f"({origin[:12]}, and this one is {generator_hash()[:12]}); {again}"
        )
    return PreTrainedTokenizerFast.from_pretrained(folder)
