"""Tokens placed in the text that they make, so that the text can be read as text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

_PART = re.compile(r"(.*)\[(\d+)/(\d+)\]", re.DOTALL)
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z]+\d*\]")


class TextPiece(NamedTuple):
    """One or more tokens that are shown together, with the text that stands for them."""

    n_tokens: int
    text: str
    starts_word: bool


def pieces(tokens: Sequence[str], text: str = "") -> list[TextPiece]:
    """Place tokens in their text, each with the space before it.

    Tokens that hold parts of one character, which `interp.core.tokens.words` names `é[1/2]` and
    `é[2/2]`, are one piece.
    """
    spaced = any(token[:1].isspace() for token in tokens[1:])
    text_pieces: list[TextPiece] = []
    at, place = 0, 0
    known = bool(text)
    while at < len(tokens):
        n, joined_token = _joined(tokens, at)
        end = _end(text, joined_token, place) if known else None
        if known and end is not None:
            shown, place = text[place:end], end
        else:
            known = False
            bare = joined_token.removeprefix("##")
            glued = (
                not at
                or spaced
                or bare != joined_token
                or _is_sign(joined_token)
                or _is_wide(joined_token)
            )
            shown = bare if glued else f" {bare}"
        before = text_pieces[-1].text if text_pieces else " "
        text_pieces.append(TextPiece(n, shown, _starts_word(before, shown)))
        at += n
    if (
        known and text_pieces and not text[place:].strip()
    ):  # such as a line end after the last token
        text_pieces[-1] = text_pieces[-1]._replace(text=text_pieces[-1].text + text[place:])
    return text_pieces


def with_spaces(tokens: Sequence[str]) -> list[str]:
    """Return tokens with the space before each, which WordPiece leaves out; parts stay as named."""
    shown: list[str] = []
    for piece in pieces(tokens):
        at = len(shown)
        shown += [piece.text] if piece.n_tokens == 1 else tokens[at : at + piece.n_tokens]
    return shown


def _joined(tokens: Sequence[str], at: int) -> tuple[int, str]:
    """Return how many tokens from `at` make one character or a few, and their text."""
    first = _PART.fullmatch(tokens[at])
    if first is None or first[2] != "1":
        return 1, tokens[at]
    n = int(first[3])
    names = [f"{first[1]}[{k}/{n}]" for k in range(1, n + 1)]
    whole = n > 1 and list(tokens[at : at + n]) == names
    return (n, first[1]) if whole else (1, tokens[at])


def _end(text: str, token: str, place: int) -> int | None:
    """Return where a token ends in the text from `place`, or None if it does not follow there."""
    if text.startswith(token, place):
        return place + len(token)
    start = place
    while start < len(text) and text[start].isspace():
        start += 1
    for spelling in (token.strip(), token.removeprefix("##")):
        if text.startswith(spelling, start):
            return start + len(spelling) if spelling else place
    return None


def _is_sign(token: str) -> bool:
    """Return True for punctuation and symbols alone."""
    return bool(token) and all(unicodedata.category(c)[0] in "PS" for c in token)


def _is_wide(text: str) -> bool:
    """Return True if a text begins with a sign of a script without spaces, such as Chinese."""
    return unicodedata.east_asian_width(text[:1] or " ") in "WF"


def _starts_word(before: str, text: str) -> bool:
    bare = text.strip()
    if text[:1].isspace() or before[-1:].isspace() or not bare:
        return True
    alone = [_is_sign(x) or _SPECIAL.fullmatch(x) for x in (before.strip(), bare)]
    return any(alone) or _is_wide(bare)
