"""Conversion between single tokens and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.core.errors import PromptError

if TYPE_CHECKING:
    from interp.core.protocols import TokenModel


def token_id(model: TokenModel, token: str | int) -> int:
    """Return the id of a token given as an id or as a text.

    Raises:
        PromptError: the token is not in the vocabulary, or the text splits into several tokens.
    """
    if isinstance(token, int):
        if not 0 <= token < model.d_vocab:
            raise PromptError(
                f"token id {token} is not in the vocabulary; {model.name} knows 0 "
                f"to {model.d_vocab - 1}"
            )
        return token
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer; give target tokens as ids")
    ids = model.tokenizer(token, add_special_tokens=False)["input_ids"]
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
    return f"token {index}" if model.tokenizer is None else repr(model.tokenizer.decode([index]))


def words(model: TokenModel, ids: Sequence[int]) -> tuple[str, ...]:
    """Decode tokens to the texts that appear in the prompt; ids without a tokenizer."""
    if model.tokenizer is None:
        return tuple(map(str, ids))
    return tuple(model.tokenizer.decode([i], clean_up_tokenization_spaces=False) for i in ids)


def shown(token: str) -> str:
    """Return a token with visible signs for line ends, tabs and an empty text."""
    return token.replace("\n", "⏎").replace("\t", "⇥") or "∅"
