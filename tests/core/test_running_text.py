"""Tokens in their text: bytes joined, words found, spaces as the text has them."""

from __future__ import annotations

import pytest

from interp.core.running_text import pieces, with_spaces


def texts(tokens, text=""):
    return [piece.text for piece in pieces(tokens, text)]


def words(tokens, text=""):
    found = []
    for _, own, starts in pieces(tokens, text):
        found = [*found, own] if starts else [*found[:-1], found[-1] + own]
    return found


@pytest.mark.parametrize(
    ("tokens", "text", "shown", "as_words"),
    [
        (
            ["na", "ï[1/2]", "ï[2/2]", "ve", " x"],
            "naïve x",
            ["na", "ï", "ve", " x"],
            ["naïve", " x"],
        ),
        (["▁", "a"], "", ["▁", " a"], ["▁", " a"]),
        # sentence pieces lose their space when they are decoded alone; the text has it
        (["Lily", "gave", "."], "Lily gave.", ["Lily", " gave", "."], ["Lily", " gave", "."]),
        (
            ["[CLS]", "cat", "##ty", "!"],
            "[CLS] catty!",
            ["[CLS]", " cat", "ty", "!"],
            ["[CLS]", " catty", "!"],
        ),
        (["[CLS]", "cat", "##ty"], "", ["[CLS]", " cat", "ty"], ["[CLS]", " catty"]),
        (["字", "句"], "", ["字", "句"], ["字", "句"]),
        (["a", "b"], "other", ["a", " b"], ["a", " b"]),
        (["a[1/3]", "b[2/3]"], "", ["a[1/3]", " b[2/3]"], ["a[1/3]", " b[2/3]"]),
        (
            ["<s>", " a", "b", "\n", "c"],
            "<s> ab\nc",
            ["<s>", " a", "b", "\n", "c"],
            ["<s>", " ab", "\n", "c"],
        ),
        ([], "", [], []),
    ],
)
def test_tokens_are_placed_in_their_text(tokens, text, shown, as_words) -> None:
    assert texts(tokens, text) == shown
    assert words(tokens, text) == as_words
    assert sum(piece.n_tokens for piece in pieces(tokens, text)) == len(tokens)


def test_tokens_of_wordpiece_get_the_spaces_before_words() -> None:
    tokens = ["[CLS]", "the", "bird", "##s", ",", "na", "ï[1/2]", "ï[2/2]", "##ve"]
    shown = with_spaces(tokens)
    assert shown[:5] == ["[CLS]", " the", " bird", "s", ","]
    assert shown[6:8] == tokens[6:8]
    assert with_spaces(["a", " cat", "."]) == ["a", " cat", "."]


def test_a_text_that_is_cut_goes_on_with_the_tokens() -> None:
    assert "".join(texts(["the", " cat", " sat", " on"], "the cat s")) == "the cat sat on"
