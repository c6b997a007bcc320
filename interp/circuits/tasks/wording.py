"""Words that are one token each, and positions of words in prompts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from interp.core.errors import OptionError, PromptError
from interp.core.tokens import encoded_text

if TYPE_CHECKING:
    from interp.model.model import Model


def template_line(template: str) -> str:
    """Join the lines of a template by slashes."""
    return re.sub(r"\n\s*", " / ", template)


def require(model: Model, n: int) -> None:
    """Raise unless a task of n pairs can be made for the model."""
    if n < 1:
        raise OptionError(f"n={n} pairs; give 1 or more")
    if model.tokenizer is None:
        raise PromptError(
            f"{model.name} has no tokenizer, but the prompts of this task are text; give one"
        )


def single(model: Model, words: Sequence[str], least: int, what: str) -> dict[str, int]:
    """Return the words that are one token after a space, with their ids."""
    word_ids: dict[str, int] = {}
    for word in words:
        ids = encoded_text(model.tokenizer, f" {word}", add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != model.tokenizer.unk_token_id:
            word_ids[word] = ids[0]
    if len(word_ids) < least:
        split = [w for w in words if w not in word_ids]
        raise PromptError(
            f"the tokenizer of {model.name} splits (or does not know) {len(split)} of {len(words)}"
            f" {what}, such as {', '.join(split[:4])}; the task needs {least} that are one token"
        )
    return word_ids


def prompt_ids(model: Model, text: str) -> tuple[int, ...]:
    """Return the ids of a prompt as the model receives them, without an end token."""
    ids = list(encoded_text(model.tokenizer, text)["input_ids"])
    end = model.tokenizer.eos_token_id
    if len(ids) > 1 and ids[-1] == end != model.tokenizer.bos_token_id:
        ids.pop()
    return tuple(ids)


def token_places(ids: Sequence[int], wanted: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Find positions of tokens: role -> (id, number of the occurrence, from 0)."""
    out = {}
    for role, (token, which) in wanted.items():
        at = [i for i, t in enumerate(ids) if t == token]
        if which >= len(at):
            raise PromptError(f"token {token} occurs {len(at)} times, not {which + 1}")
        out[role] = at[which]
    return out
