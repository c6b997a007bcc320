"""Roles of tokens found by what a template writes around turns, over forms of templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fixtures.chats import TEMPLATES

from interp.core.chat import MARKUP, chat_text, token_roles
from interp.core.errors import PromptError
from interp.core.tokens import encoded_text

TALK = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "hello there"},
    {"role": "assistant", "content": "<think>who?</think> I am well"},
    {"role": "user", "content": "a smile 🙂 and\nyou?"},
]


@dataclass
class Talker:
    tokenizer: Any
    name: str = "talker"


def read(talker: Any, messages: list[dict[str, str]]) -> dict[Any, str]:
    """Return the text of each role, as the tokens of it decode, without spaces."""
    text = chat_text(talker, messages)
    ids = encoded_text(talker.tokenizer, text, add_special_tokens=False)["input_ids"]
    roles = token_roles(talker, ids)
    assert roles is not None
    assert len(roles) == len(ids)
    found: dict[Any, list[int]] = {}
    for token, role in zip(ids, roles, strict=True):
        found.setdefault(role, []).append(token)
    return {role: "".join(talker.tokenizer.decode(x).split()) for role, x in found.items()}


@pytest.mark.parametrize("form", TEMPLATES)
def test_every_token_of_a_turn_has_the_role_of_its_turn(
    form: str, chat_tokenizer: Callable[[str], Any]
) -> None:
    talker = Talker(chat_tokenizer(form))
    found = read(talker, TALK[1:] if form == "no system" else TALK)
    said = {"user": "hellothereasmile🙂andyou?", "thinking": "who?", "assistant": "Iamwell"}
    said |= {} if form == "no system" else {"system": "bekind"}
    markup = found.pop(MARKUP)
    assert set(found) - {None} == set(said)
    assert {role: found[role] for role in said} == said
    assert not any(word in markup for word in ("hello", "kind", "well", "who"))
    if None in found:  # only the first token of all stands outside
        assert found[None] == "<s>"


def test_a_system_turn_that_the_template_adds_is_found(
    chat_tokenizer: Callable[[str], Any],
) -> None:
    found = read(Talker(chat_tokenizer("thinking")), [{"role": "user", "content": "hello"}])
    assert found["system"] == "Bekind."
    assert found["user"] == "hello"


def test_a_reply_is_open_unless_the_chat_ends_with_one(
    chat_tokenizer: Callable[[str], Any],
) -> None:
    talker = Talker(chat_tokenizer("marked"))
    assert chat_text(talker, TALK).endswith("assistant\n")
    assert chat_text(talker, TALK[:3]).endswith("I am well<|im_end|>\n")


def test_thoughts_that_are_not_closed_reach_to_the_end(
    chat_tokenizer: Callable[[str], Any],
) -> None:
    talker = Talker(chat_tokenizer("marked"))
    found = read(talker, [*TALK[:2], {"role": "assistant", "content": "so <think>well well"}])
    assert found["thinking"] == "wellwell"
    assert found["assistant"] == "so"


def test_plain_text_has_no_roles(chat_tokenizer: Callable[[str], Any]) -> None:
    tokenizer = chat_tokenizer("marked")
    ids = encoded_text(tokenizer, "hello there user assistant")["input_ids"]
    assert token_roles(Talker(tokenizer), ids) is None
    tokenizer.chat_template = None
    assert token_roles(Talker(tokenizer), ids) is None


def test_what_is_no_chat_is_refused(chat_tokenizer: Callable[[str], Any]) -> None:
    talker = Talker(chat_tokenizer("no system"))
    with pytest.raises(PromptError, match="refuses the roles system, user: System role not supp"):
        chat_text(talker, TALK[:2])
    with pytest.raises(PromptError, match=r"message 1 of a chat is .* expected messages like"):
        chat_text(talker, [{"role": "user"}])
    with pytest.raises(PromptError, match="the text is empty"):
        chat_text(talker, " ")
    talker.tokenizer.chat_template = None
    with pytest.raises(PromptError, match="no chat template"):
        chat_text(talker, "hello")
    with pytest.raises(PromptError, match="no tokenizer, so it reads no chats"):
        chat_text(Talker(None), "hello")
