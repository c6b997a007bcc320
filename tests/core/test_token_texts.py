"""Texts of tokens: pieces of a character name it, and no character rearranges what is shown."""

from __future__ import annotations

import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from interp.attribution.result import Attribution
from interp.core.prompts import text_of
from interp.core.tokens import LOST, prompt_text_of, separate_words, show, shown, visible, words
from interp.draw.page import page
from interp.heads.patterns import View
from interp.report.tokens import attribution_page

TEXT = "café 🙂 €"
OVERRIDE = "ab \u202edc\u2066 \u200f"


@pytest.fixture(scope="module")
def by_bytes() -> SimpleNamespace:
    """Return a model whose tokenizer has one token per byte, and one for two bytes of an emoji."""
    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {sign: i for i, sign in enumerate(signs)}
    first, second = "\U0001f642".encode()[:2]
    names = {byte: sign for sign, byte in _alphabet().items()}
    merged = names[first], names[second]
    vocabulary["".join(merged)] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, [merged]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return SimpleNamespace(
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer),
        d_vocab=len(vocabulary),
        name="bytes",
    )


def _alphabet() -> dict[str, int]:
    from interp.core.tokens import _bytes

    return _bytes()


def ids_of(model, text: str) -> list[int]:
    return model.tokenizer(text)["input_ids"]


def test_pieces_of_a_character_name_it_and_their_number(by_bytes) -> None:
    ids = ids_of(by_bytes, TEXT)
    assert words(by_bytes, ids) == (
        "c",
        "a",
        "f",
        "é[1/2]",
        "é[2/2]",
        " ",
        "🙂[1/3]",
        "🙂[2/3]",
        "🙂[3/3]",
        " ",
        "€[1/3]",
        "€[2/3]",
        "€[3/3]",
    )
    assert tuple(text_of(ids, by_bytes)) == words(by_bytes, ids)
    assert prompt_text_of(by_bytes, ids) == TEXT


def test_words_of_sentencepiece_keep_the_space_before_them() -> None:
    vocabulary = {sign: at for at, sign in enumerate(("<unk>", "▁", "▁cat", "s", "▁sat"))}
    tokenizer = Tokenizer(models.Unigram([(sign, -1.0) for sign in vocabulary], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    model = SimpleNamespace(tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    ids = ids_of(model, "cats sat")
    assert words(model, ids) == (" cat", "s", " sat")
    assert separate_words(model, ids) == ("cat", "s", "sat")  # as `token_id` reads it


def test_pieces_apart_are_named_by_their_bytes(by_bytes) -> None:
    ids = ids_of(by_bytes, "🙂é")
    assert separate_words(by_bytes, ids) == ("<F0 9F>", "<99>", "<82>", "<C3>", "<A9>")
    assert show(by_bytes, ids[1]) == "'<99>'"
    # cut in the middle, or no text at all: nothing is guessed
    assert words(by_bytes, ids[:2]) == ("<F0 9F>", "<99>")
    assert words(by_bytes, [*ids[3:4], *ids_of(by_bytes, "x"), *ids[4:]]) == ("<C3>", "x", "<A9>")
    assert LOST not in "".join(words(by_bytes, ids))


def reordering(text: str) -> list[str]:
    kinds = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    marks = "\u200e\u200f\u061c\u200b\u2028\u2029"
    return [x for x in text if unicodedata.bidirectional(x) in kinds or x in marks]


def test_characters_that_reorder_a_line_are_named() -> None:
    assert visible(OVERRIDE) == "ab [U+202E]dc[U+2066] [U+200F]"
    assert shown("\u202e\n") == "[U+202E]⏎"
    assert shown("👩\u200d👧") == "👩\u200d👧"  # one sign of three characters
    assert reordering(OVERRIDE)


def attribution() -> Attribution:
    made = {"prompt": OVERRIDE, "model_id": OVERRIDE}
    return Attribution(
        "occlusion",
        f"logit of {OVERRIDE}",
        1.0,
        "logits",
        True,
        (OVERRIDE, "b"),
        ("b",),
        np.array([0.5, -0.25]),
        np.zeros(2, bool),
        provenance=made,
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda: View.of_patterns(
            np.full((1, 1, 2, 2), 0.5),
            (OVERRIDE, "b"),
            title=OVERRIDE,
            provenance={"prompts": {"text": {"source": OVERRIDE}}},
        ).html(),
        lambda: attribution_page([attribution()], title=OVERRIDE, command=OVERRIDE),
        lambda: page(
            OVERRIDE, None, [(OVERRIDE, OVERRIDE)], {"prompts": OVERRIDE}, heading=OVERRIDE
        ).decode(),
    ],
    ids=["view", "attribution", "result"],
)
def test_no_page_is_reordered_by_the_text_it_shows(made) -> None:
    text = made()
    assert reordering(text) == []
    assert "[U+202E]dc" in text


def test_the_text_stands_above_its_tokens() -> None:
    from interp.report.printed.attribution import attribution_text

    first = attribution_text([attribution()], top=1).splitlines()[0]
    assert first == "text: ab [U+202E]dc[U+2066] [U+200F]"
    shown_page = attribution_page([attribution()])
    assert shown_page.index('<p class="prompt">ab ') < shown_page.index('<p class="text">')
