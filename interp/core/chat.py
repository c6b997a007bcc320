"""Chats: messages rendered by a tokenizer's chat template, and the role of each token.

A template is known only as a program that writes a text. What it writes before and after the turns
of each role is found once per tokenizer, by rendering a conversation of known words; with it the
turns of any tokens are found, whoever made them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from interp.core.errors import PromptError

if TYPE_CHECKING:
    from interp.core.protocols import TokenModel

ROLES = ("system", "user", "assistant")
"""Roles whose turns are found in tokens; the parts of a reply inside `<think>` are "thinking"."""
THINKING = "thinking"
MARKUP = "markup"
Message = Mapping[str, str]
_LIKE = '[{"role": "user", "content": "Hello"}]'
_WORDS = {"system": "zqsysqz", "user": "zquserqz", "assistant": "zqreplyqz"}
_THOUGHTS = (("<think>", "</think>"), ("<|START_THINKING|>", "<|END_THINKING|>"))


def is_chat(prompt: Any) -> bool:
    """Return True for a list of messages, which is one prompt."""
    return isinstance(prompt, (list, tuple)) and bool(prompt) and isinstance(prompt[0], Mapping)


def has_template(tokenizer: Any) -> bool:
    """Return True if a tokenizer comes with a chat template."""
    return bool(getattr(tokenizer, "chat_template", None))


def chat_text(model: TokenModel, prompt: str | Sequence[Message]) -> str:
    """Render a chat by the tokenizer's template, up to where the assistant's reply begins.

    Args:
        model: the model.
        prompt: messages with "role" and "content", or a text, which is one message of the user. A
            chat that ends with the assistant's message is rendered to its end.

    Raises:
        PromptError: the model has no tokenizer or template, a message is not one, or the template
            refuses the roles.
    """
    turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [*prompt]
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
        return _rendered(model.tokenizer, turns, reply=turns[-1]["role"] != "assistant")
    except Exception as error:  # what a template raises is up to its program
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise PromptError(
            f"the chat template of {model.name} refuses the roles "
            f"{', '.join(turn['role'] for turn in turns)}: {first}"
        ) from error


def _rendered(
    tokenizer: Any, turns: Sequence[Message], *, reply: bool, template: str | None = None
) -> str:
    return tokenizer.apply_chat_template(
        [dict(turn) for turn in turns], chat_template=template, tokenize=False,
        add_generation_prompt=reply,
    )  # fmt: skip


def as_read(model: TokenModel, prompt: str | Sequence[Message]) -> tuple[str, dict[str, bool]]:
    """Return a text or a chat as the model is to read it, and options of its tokenizer.

    With `model.chat` a text is the user's turn in a chat; the template writes the special tokens.
    """
    if is_chat(prompt) or getattr(model, "chat", False):
        return chat_text(model, prompt), {"add_special_tokens": False}
    return str(prompt), {}


def token_roles(model: TokenModel, ids: Sequence[int]) -> tuple[str | None, ...] | None:
    """Return the role of each token: one of `ROLES`, "thinking" or "markup"; None outside turns.

    None for the whole if the model has no template, or if no turn is found in the tokens.
    """
    form = _form_of(model.tokenizer)
    return None if form is None else form.roles(tuple(ids))


class ChatForm:
    """Texts that a template writes around turns, without spaces, which tokenizers may change.

    Args:
        tokenizer: the tokenizer.
        heads: what stands before a turn, with its role; the longest first.
        ends: what stands after a turn; the longest first.
    """

    def __init__(
        self, tokenizer: Any, heads: Sequence[tuple[str, str]], ends: Sequence[str]
    ) -> None:
        self.tokenizer, self.heads, self.ends = tokenizer, heads, ends
        # one forward pass asks for the same prompt once per layer
        self.roles = lru_cache(maxsize=256)(self._roles)

    def _roles(self, ids: tuple[int, ...]) -> tuple[str | None, ...] | None:
        """Return the role of each token; None if no turn is found."""
        pieces = [_bare(self.tokenizer.decode([token])) for token in ids]
        owner: list[int] = []  # the token of each character
        for token, piece in enumerate(pieces):
            owner += [token] * len(piece)
        found: list[str | None] = [None] * len(ids)
        for start, end, role in self._spans("".join(pieces)):
            for token in owner[start:end]:
                # a token that reaches from a turn into the markup is of the turn
                if role != MARKUP or found[token] is None:
                    found[token] = role
        for token, piece in enumerate(pieces):  # spaces belong to what stands before them
            if not piece and token:
                found[token] = found[token - 1]
        return tuple(found) if any(found) else None

    def _spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and role of the turns of a text without spaces, and of its markup."""
        role_of = dict(self.heads)
        head = re.compile("|".join(re.escape(x) for x, _ in self.heads))
        stop = re.compile("|".join(re.escape(x) for x in (*self.ends, *role_of)))
        place = 0
        while (begin := head.search(text, place)) is not None:
            end = stop.search(text, begin.end())
            last = len(text) if end is None else end.start()
            role = role_of[begin.group()]
            yield from self._thoughts(text, begin.end(), last, role)
            yield begin.start(), begin.end(), MARKUP
            place = last
            if end is not None and end.group() in self.ends:
                yield end.start(), end.end(), MARKUP
                place = end.end()

    def _thoughts(self, text: str, start: int, end: int, role: str) -> Iterator[Any]:
        """Yield the parts of a turn: the reply, and what the assistant thinks before it."""
        place = start
        for opening, closing in _THOUGHTS if role == "assistant" else ():
            while (begin := text.find(opening, place, end)) >= 0:
                inside = begin + len(opening)
                close = text.find(closing, inside, end)
                last = end if close < 0 else close
                yield place, begin, role
                yield inside, last, THINKING
                yield begin, inside, MARKUP
                place = last if close < 0 else close + len(closing)
                if close >= 0:
                    yield close, place, MARKUP
        yield place, end, role


def _form_of(tokenizer: Any) -> ChatForm | None:
    if tokenizer is None or not has_template(tokenizer):
        return None
    return _learned(tokenizer, str(tokenizer.chat_template))


@lru_cache(maxsize=8)
def _learned(tokenizer: Any, template: str) -> ChatForm | None:
    """Find what a template writes around turns; None if it does not show the words of turns."""

    def shown(*roles: str, reply: bool = False) -> list[str] | None:
        """Return what stands before, between and after the turns of these roles."""
        turns = [{"role": role, "content": _WORDS[role]} for role in roles]
        try:
            text = _bare(_rendered(tokenizer, turns, reply=reply, template=template))
        except Exception:  # the template refuses these roles, or their order
            return None
        parts = re.split("|".join(_WORDS.values()), text)
        return parts if len(parts) == len(roles) + 1 else None

    talk = shown("user", "assistant", "user", "assistant")
    if talk is None:
        return None
    bos = _bare(getattr(tokenizer, "bos_token", None) or "")
    first, to_reply, to_user, _, tail = talk
    asked = shown("user")
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(to_user, tail, strict=False))
    after_reply, after_user = "".join(letter for letter, _ in alike), ""
    if asked is not None and to_reply.startswith(asked[1]) and asked[1] != to_reply:
        after_user = asked[1]
    user = to_user[len(after_reply) :]
    heads = {user: "user", to_reply[len(after_user) :]: "assistant"}
    if not user or not first.endswith(user):  # else what is before it is a default of the template
        heads |= dict.fromkeys((first, first.removeprefix(bos)), "user")
    ends = {after_reply, after_user}
    system = shown("system", "user")
    if system is not None:
        heads |= dict.fromkeys((system[0], system[0].removeprefix(bos)), "system")
        if user and system[1].endswith(user):
            ends.add(system[1].removesuffix(user))
        else:
            heads[system[1]] = "user"
    own = sorted(((x, role) for x, role in heads.items() if x), key=lambda pair: -len(pair[0]))
    if {role for _, role in own} < {"user", "assistant"}:
        return None
    return ChatForm(tokenizer, own, sorted(filter(None, ends), key=len, reverse=True))


def _bare(text: str) -> str:
    return re.sub(r"\s+", "", text)
