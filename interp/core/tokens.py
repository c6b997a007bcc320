"""Single tokens by their text, and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.core.errors import PromptError

if TYPE_CHECKING:
    from interp.core.protocols import TokenModel


def token_id(model: TokenModel, token: str | int) -> int:
    """The id of a token given as an id or as a text.

    Raises:
        PromptError: it is not in the vocabulary, or is several tokens, with what it splits into.
    """
    if isinstance(token, int):
        if not 0 <= token < model.d_vocab:
            raise PromptError(f"token id {token}; {model.name} knows 0 to {model.d_vocab - 1}")
        return token
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer; give target tokens as ids")
    ids = model.tokenizer(token, add_special_tokens=False)["input_ids"]
    unknown = getattr(model.tokenizer, "unk_token_id", None)
    if len(ids) == 1 and (ids[0] != unknown or token == model.tokenizer.unk_token):
        return int(ids[0])
    parts = [show(model, i) for i in ids]
    raise PromptError(
        f"{token!r} is no single token of {model.name}: it reads {' '.join(parts)}; "
        "take one of these (mind the space in front), or an id"
    )


def show(model: TokenModel, index: int) -> str:
    """A token as a quoted text, or its id."""
    return f"token {index}" if model.tokenizer is None else repr(model.tokenizer.decode([index]))


def words(model: TokenModel, ids: Sequence[int]) -> tuple[str, ...]:
    """Tokens as texts, in the form in which they stand in the text; ids without a tokenizer."""
    if model.tokenizer is None:
        return tuple(map(str, ids))
    return tuple(model.tokenizer.decode([i], clean_up_tokenization_spaces=False) for i in ids)
