"""Chats: messages rendered by a tokenizer's chat template, and the role of each token.

A template is known only as a program that writes a text. Whose words stand where is found from the
messages: each is rendered with its words and with a placeholder in their place, and what differs is
its own. Tokens without their messages have no roles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from interp.core.errors import PromptError
from interp.core.tokens import encoded_text

if TYPE_CHECKING:
    from interp.core.protocols import TokenModel

ROLES = ("system", "user", "assistant", "tool")
"""Roles that are segments; the parts of a reply inside `<think>` are "thinking"."""
THINKING = "thinking"
MARKUP = "markup"
Message = Mapping[str, str]
_LIKE = '[{"role": "user", "content": "Hello"}]'
_THOUGHTS = (("<think>", "</think>"), ("<|START_THINKING|>", "<|END_THINKING|>"))
_REASONING = ("reasoning_content", "thinking")  # fields of a message beside its content
_PLACEHOLDER = "\ue000zq\ue001"  # private use: neither trimmed nor changed in case


class RoleSpan(NamedTuple):
    """Characters `start` to `end` (exclusive) of a rendered chat that one role wrote."""

    start: int
    end: int
    role: str


@dataclass(frozen=True)
class ChatRoles:
    """The role of each token of a chat, or the reason why they are not known.

    Args:
        of_tokens: the role of the token's message, "thinking", or "markup" for what the template
            writes.
        unknown: why the roles cannot be told; empty where they are known.
    """

    of_tokens: tuple[str, ...]
    unknown: str = ""


def is_chat(prompt: Any) -> bool:
    """Return True for a list of messages, which is one prompt."""
    return isinstance(prompt, (list, tuple)) and bool(prompt) and isinstance(prompt[0], Mapping)


def has_template(tokenizer: Any) -> bool:
    """Return True if a tokenizer comes with a chat template."""
    return bool(getattr(tokenizer, "chat_template", None))


def chat_text(model: TokenModel, prompt: str | Sequence[Message]) -> str:
    """Render a chat by the tokenizer's template, up to where the assistant's reply begins."""
    turns = _turns(prompt)
    for at, turn in enumerate(turns):
        right = isinstance(turn, Mapping) and {"role", "content"} <= turn.keys()
        if not right or not all(isinstance(turn[x], str) for x in ("role", "content")):
            raise PromptError(
                f"message {at + 1} of a chat is {turn!r}; expected messages like {_LIKE}"
            )
    if not any(turn["content"].strip() for turn in turns):
        raise PromptError("the text is empty")
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, so it reads no chats; give token ids")
    if not has_template(model.tokenizer):
        raise PromptError(
            f"{model.name} has no chat template; write the text as the model was trained on it"
        )
    try:
        return _rendered(model.tokenizer, turns)
    except Exception as error:  # what a template raises is up to its program
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise PromptError(
            f"the chat template of {model.name} refuses the roles "
            f"{', '.join(turn['role'] for turn in turns)}: {first}"
        ) from error


def _turns(prompt: str | Sequence[Message]) -> list[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [*prompt]


def _rendered(tokenizer: Any, turns: Sequence[Message]) -> str:
    return tokenizer.apply_chat_template(
        [dict(turn) for turn in turns],
        tokenize=False,
        add_generation_prompt=turns[-1]["role"] != "assistant",
    )


def reads_as_chat(model: TokenModel, prompt: Any) -> bool:
    """Return True for a chat, and for a text if `model.chat` makes it the user's turn."""
    return is_chat(prompt) or (isinstance(prompt, str) and bool(getattr(model, "chat", False)))


def tell_reading(model: TokenModel) -> None:
    """Report that a text is about to be read as a prompt, to whoever loaded the model."""
    tell = getattr(model, "reading_text", None)
    if tell is not None:
        tell()


def as_read(model: TokenModel, prompt: str | Sequence[Message]) -> tuple[str, dict[str, bool]]:
    """Return a text or a chat as the model is to read it, and options of its tokenizer.

    With `model.chat` a text is the user's turn in a chat; the template writes the special tokens.
    """
    if reads_as_chat(model, prompt):
        return chat_text(model, prompt), {"add_special_tokens": False}
    return str(prompt), {}


def encoded_chat(
    model: TokenModel, prompt: str | Sequence[Message]
) -> tuple[tuple[int, ...], ChatRoles]:
    """Return the tokens of a chat and their roles.

    A token has the role of most of its characters that are a message's, the first of equal ones;
    a token without any is markup, and white space that the template writes belongs to what stands
    before it.
    """
    text = chat_text(model, prompt)
    fast = bool(getattr(model.tokenizer, "is_fast", False))
    encoding = encoded_text(
        model.tokenizer, text, verbose=False, add_special_tokens=False, return_offsets_mapping=fast
    )
    ids = tuple(encoding["input_ids"])
    try:
        spans = role_spans(model, prompt, text)
        places = encoding["offset_mapping"] if fast else _places(model, text, ids)
    except PromptError as error:
        return ids, ChatRoles((), str(error))
    writers = [MARKUP] * len(text)
    for start, end, role in spans:
        writers[start:end] = [role] * (end - start)
    roles: list[str] = []
    for start, end in places:
        counts = Counter(role for role in writers[start:end] if role != MARKUP)
        blank = roles and not text[start:end].strip()
        roles.append(counts.most_common(1)[0][0] if counts else roles[-1] if blank else MARKUP)
    return ids, ChatRoles(tuple(roles))


def _places(model: TokenModel, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return the characters of each token, of a tokenizer that does not give them."""
    there = [at for at, sign in enumerate(text) if not sign.isspace()]
    places, done = [], 0
    for token in ids:
        piece = "".join(model.tokenizer.decode([token]).split())
        mine = there[done : done + len(piece)]
        if "".join(text[at] for at in mine) != piece:
            raise PromptError(
                f"the roles of a chat cannot be told: the tokens of {model.name} do not decode to "
                "its text, and its tokenizer gives no places; use a fast tokenizer"
            )
        places.append((mine[0], mine[-1] + 1) if mine else (0, 0))
        done += len(piece)
    return places


def role_spans(
    model: TokenModel, prompt: str | Sequence[Message], text: str | None = None
) -> list[RoleSpan]:
    """Return the characters of a rendered chat that are words of its messages.

    The rest is the template's. A system text that the template writes only where the chat has none
    is the system's too.
    """
    text = chat_text(model, prompt) if text is None else text
    turns, spans = _turns(prompt), []
    for piece in _pieces(turns):
        other = [*turns]
        before, after = piece.words[: piece.start], piece.words[piece.end :]
        other[piece.turn] = {**turns[piece.turn], piece.field: before + _PLACEHOLDER + after}
        places = _differing(model.tokenizer, text, other)
        if places is None:
            raise PromptError(
                f"the roles of a chat cannot be told: the chat template of {model.name} writes "
                f"other text around message {piece.turn + 1} ({turns[piece.turn]['role']}) when "
                "its words change; use a template that writes messages as they are given, or name "
                "no roles"
            )
        spans += (RoleSpan(*place, piece.role) for place in places)
    if all(turn["role"] != "system" for turn in turns):
        added = [{"role": "system", "content": _PLACEHOLDER}, *turns]
        # where a system turn is only added, or refused, the template has no text of its own
        spans += (
            RoleSpan(*place, "system")
            for place in _differing(model.tokenizer, text, added) or ()
            if text[slice(*place)].strip()
        )
    spans.sort()
    if any(a.end > b.start for a, b in pairwise(spans)):
        raise PromptError(
            f"the roles of a chat cannot be told: the chat template of {model.name} writes several "
            "messages at one place; use a template that writes them one after the other"
        )
    return spans


class _Piece(NamedTuple):
    """A part of a message with one role: its place in a field of the turn."""

    turn: int
    field: str
    words: str
    start: int
    end: int
    role: str


def _pieces(turns: Sequence[Message]) -> Iterator[_Piece]:
    for at, turn in enumerate(turns):
        for field in ("content", *_REASONING):
            words = turn.get(field, "")
            role = turn["role"] if field == "content" else THINKING
            # another package's field of this name may hold no text
            for start, end, whose in _thoughts(words, role) if isinstance(words, str) else ():
                if words[start:end].strip():
                    yield _Piece(at, field, words, start, end, whose)


def _thoughts(words: str, role: str) -> Iterator[tuple[int, int, str]]:
    """Yield the parts of a message: the reply, and what the assistant thinks before it."""
    place = 0
    for opening, closing in _THOUGHTS if role == "assistant" else ():
        while (begin := words.find(opening, place)) >= 0:
            inside = begin + len(opening)
            close = words.find(closing, inside)
            yield place, begin, role
            yield inside, len(words) if close < 0 else close, THINKING
            place = len(words) if close < 0 else close + len(closing)
    yield place, len(words), role


def _differing(tokenizer: Any, text: str, turns: Sequence[Message]) -> list[tuple[int, int]] | None:
    """Return the places of a text where another rendering has the placeholder, none if it has none.

    None if the two differ elsewhere, or the template refuses the other.
    """
    try:
        around = _rendered(tokenizer, turns).split(_PLACEHOLDER)
    except Exception:  # what a template raises is up to its program
        return None
    rest, times = len(text) - sum(map(len, around)), len(around) - 1
    length = rest // times if times else 0
    start, places = len(around[0]), []
    for part in around[1:]:
        places.append((start, start + length))
        start += length + len(part)
    words = text[slice(*places[0])] if places and length > 0 else ""
    return places if words.join(around) == text else None
