"""Conversion between single tokens and their texts."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from interp.core.errors import PromptError, is_panic

if TYPE_CHECKING:
    from interp.core.protocols import TokenModel


def encoded_text(tokenizer: Any, *texts: Any, **options: Any) -> Any:
    """Return what a tokenizer, or a method of it, returns."""
    try:
        return tokenizer(*texts, **options)
    except BaseException as error:
        if not is_panic(error):
            raise
        message = " ".join(str(error).split())[:200]
        raise PromptError(f"the tokenizer failed inside ({message}); replace its files") from error


def token_id(model: TokenModel, token: str | int) -> int:
    """Return the id of a token given as an id or as a text."""
    if isinstance(token, int):
        if not 0 <= token < model.d_vocab:
            raise PromptError(
                f"token id {token} is not in the vocabulary; {model.name} knows 0 "
                f"to {model.d_vocab - 1}"
            )
        return token
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer; give target tokens as ids")
    ids = encoded_text(model.tokenizer, token, add_special_tokens=False)["input_ids"]
    unknown = getattr(model.tokenizer, "unk_token_id", None)
    if len(ids) == 1 and (ids[0] != unknown or token == model.tokenizer.unk_token):
        return int(ids[0])
    parts = [show(model, i) for i in ids]
    raise PromptError(
        f"{token!r} is not a single token of {model.name}: it splits into {' '.join(parts)}; "
        "give one of these (with its leading space), or an id"
    )


def show(model: TokenModel, index: int) -> str:
    """Return a token as a quoted text, or its id."""
    return f"token {index}" if model.tokenizer is None else repr(one_word(model, index))


def words(model: TokenModel, ids: Sequence[int]) -> tuple[str, ...]:
    """Decode the tokens of a sequence to the texts that appear in it; ids without a tokenizer.

    A character of several tokens is named by each of them, with the number of the piece: the four
    bytes of an emoji as two tokens are "🙂[1/2]" and "🙂[2/2]".
    """
    if model.tokenizer is None:
        return tuple(map(str, ids))
    known = {i: word_with_space(model, i) for i in dict.fromkeys(ids)}
    partial = {i for i in known if is_piece(model, i)}
    texts, pieces = [known[i] for i in ids], [i in partial for i in ids]
    at = 0
    while at < len(texts):
        text, n = _character(model, ids, pieces, at) if pieces[at] else ("", 1)
        if n > 1:
            texts[at : at + n] = (f"{text}[{k}/{n}]" for k in range(1, n + 1))
        at += n
    return tuple(texts)


def separate_words(model: TokenModel, ids: Sequence[int]) -> tuple[str, ...]:
    """Decode tokens that do not follow each other, such as the likeliest; ids without a tokenizer.

    A piece of a character is named by its bytes: "<F0 9F>".
    """
    return tuple(str(i) if model.tokenizer is None else one_word(model, i) for i in ids)


def prompt_text_of(model: TokenModel, ids: Sequence[int]) -> str:
    """Decode a sequence of tokens to one text; empty without a tokenizer."""
    return "" if model.tokenizer is None else _decoded(model, ids)


def one_word(model: TokenModel, index: int) -> str:
    """Decode a token; a piece of a character to its bytes in hexadecimal, where these are known."""
    if not is_piece(model, index):
        return _decoded(model, [index])
    name = getattr(model.tokenizer, "convert_ids_to_tokens", lambda _: None)(index)
    if isinstance(name, str) and (byte := re.fullmatch(r"<0x([0-9A-F]{2})>", name)):
        return f"<{byte[1]}>"
    if isinstance(name, str) and name and all(sign in _bytes() for sign in name):
        return f"<{bytes(_bytes()[sign] for sign in name).hex(' ').upper()}>"
    return _decoded(model, [index])


def word_with_space(model: TokenModel, index: int) -> str:
    """Decode a token with the space before it, which sentencepiece leaves out of a token alone."""
    name = getattr(model.tokenizer, "convert_ids_to_tokens", lambda _: None)(index)
    if isinstance(name, str) and name.startswith(SPACE):
        return name.replace(SPACE, " ")
    return one_word(model, index)


def is_piece(model: TokenModel, index: int) -> bool:
    """Return True if a token alone is not whole characters of UTF-8."""
    return LOST in _decoded(model, [index])


SPACE = "\u2581"
"""Sign of a space in vocabularies of sentencepiece."""
LOST = "\ufffd"
"""Sign that a tokenizer puts in place of bytes that are no character."""
_LONGEST = 12  # tokens of one character with the marks and joiners that follow in the same tokens


def _character(
    model: TokenModel, ids: Sequence[int], pieces: Sequence[bool], at: int
) -> tuple[str, int]:
    """Return the text of the fewest tokens from `at` that are whole characters, and their number.

    The number is 1 where there are none: the bytes of the prompt are no text there.
    """
    for end in range(at + 2, min(at + _LONGEST, len(ids)) + 1):
        if not pieces[end - 1]:
            break
        if LOST not in (text := _decoded(model, ids[at:end])):
            return text, end - at
    return "", 1


def _decoded(model: TokenModel, ids: Sequence[int]) -> str:
    tokenizer = model.tokenizer
    assert tokenizer is not None
    # an attribute of those that may drop a space before punctuation
    has_option = hasattr(tokenizer, "clean_up_tokenization_spaces")
    return encoded_text(
        tokenizer.decode, [*ids], **({"clean_up_tokenization_spaces": False} if has_option else {})
    )


@cache
def _bytes() -> dict[str, int]:
    """Return the byte that each sign of a byte-level vocabulary stands for.

    Printable signs of Latin-1 stand for themselves, the other bytes for signs from U+0100 on.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): x for i, x in enumerate(others)}


_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


OWN_ESCAPE = f"\x1b<{secrets.token_hex(8)}>"
"""Escape character of our own colours, which no other text can hold."""


def coloured(text: str) -> str:
    """Mark the colours of a text of ours, so that the command line writes them to a terminal."""
    return text.replace("\x1b", OWN_ESCAPE)


def visible(text: str) -> str:
    """Name characters that reorder or hide the text around them, such as [U+202E].

    A right-to-left override in a prompt would otherwise reverse the line that shows it. The joiners
    of emoji are kept.
    """
    return _UNSEEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def shown(token: str) -> str:
    """Return a token with visible signs for line ends, tabs, controls and an empty text."""
    return visible(token.replace("\n", "⏎").replace("\t", "⇥")) or "∅"
