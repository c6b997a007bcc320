"""Roles of tokens found by rendering each message, over forms of templates."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from fixtures.chats import TEMPLATES

from interp.core.chat import MARKUP, chat_text, encoded_chat, role_spans
from interp.core.errors import PromptError

TALK = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "hello there"},
    {"role": "assistant", "content": "<think>who?</think> I am well"},
    {"role": "user", "content": "a smile 🙂 and\nyou?"},
]
SCRIPTS = {
    "system": "CYRILLIC",
    "user": "GREEK",
    "assistant": "HEBREW",
    "thinking": "ARMENIAN",
    "tool": "GEORGIAN",
}
LETTERS = {
    "system": "бгджзф",
    "user": "αβγδεζ",
    "assistant": "אבגדהו",
    "thinking": "աբգդեզ",
    "tool": "აბგდევ",
}


@dataclass
class Talker:
    tokenizer: Any
    name: str = "talker"


def read(talker: Any, messages: list[dict[str, str]]) -> dict[str, str]:
    """Return the text of each role, as the tokens of it decode, without spaces."""
    ids, roles = encoded_chat(talker, messages)
    assert not roles.unknown
    assert len(roles.of_tokens) == len(ids)
    found: dict[str, list[int]] = {}
    for token, role in zip(ids, roles.of_tokens, strict=True):
        found.setdefault(role, []).append(token)
    return {role: "".join(talker.tokenizer.decode(x).split()) for role, x in found.items()}


@pytest.mark.parametrize("form", ["marked", "thinking", "headers", "no system", "brackets"])
def test_every_token_of_a_turn_has_the_role_of_its_turn(
    form: str, chat_tokenizer: Callable[[str], Any]
) -> None:
    talker = Talker(chat_tokenizer(form))
    found = read(talker, TALK[1:] if form == "no system" else TALK)
    said = {"user": "hellothereasmile🙂andyou?", "thinking": "who?", "assistant": "Iamwell"}
    said |= {} if form == "no system" else {"system": "bekind"}
    markup = found.pop(MARKUP)
    assert found == said
    assert not any(word in markup for word in ("hello", "kind", "well", "who"))


def words(rng: np.random.Generator, role: str) -> str:
    """Return random words in the script of a role, with white space and signs of templates."""
    drawn = ("".join(rng.choice([*LETTERS[role]], 3)) for _ in range(int(rng.integers(1, 4))))
    return str(rng.choice(["", " ", "\n"])) + " ".join(drawn) + str(rng.choice(["", " ", "\n\n"]))


def conversation(rng: np.random.Generator, *, system: bool, tools: bool) -> list[dict[str, str]]:
    turns = [{"role": "system", "content": words(rng, "system")}] if system else []
    for number in range(int(rng.integers(1, 5))):
        role = "assistant" if number % 2 else "user"
        said = words(rng, role)
        if role == "assistant" and rng.random() < 0.5:
            said = f"<think>{words(rng, 'thinking')}</think>{said}"
        turns.append({"role": role, "content": said})
        if role == "user" and tools and rng.random() < 0.5:
            turns.append({"role": "tool", "content": words(rng, "tool")})
    return turns


def written_by(text: str) -> set[str]:
    """Return the roles in whose scripts a text has letters."""
    names = {unicodedata.name(sign, "").partition(" ")[0] for sign in text}
    return {role for role, script in SCRIPTS.items() if script in names}


def test_every_letter_of_a_message_has_its_role_and_the_templates_text_none(
    chat_tokenizer: Callable[[str], Any],
) -> None:
    """The script of a letter says who wrote it, whatever the template does with the messages."""
    rng = np.random.default_rng(0)
    seen: dict[str, set[str]] = {}
    for form in TEMPLATES:
        talker = Talker(chat_tokenizer(form))
        for _ in range(12):
            turns = conversation(rng, system=rng.random() < 0.5, tools=form == "tools")
            if form == "no system" and turns[0]["role"] == "system":
                continue
            text = chat_text(talker, turns)
            coded = talker.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            ids, roles = encoded_chat(talker, turns)
            assert (roles.unknown, list(ids)) == ("", coded["input_ids"]), form
            own = role_spans(talker, turns)
            for start, end in coded["offset_mapping"]:
                letters, role = written_by(text[start:end]), roles.of_tokens[0]
                roles = type(roles)(roles.of_tokens[1:])
                if letters:
                    assert {role} == letters, (form, turns)
                    seen.setdefault(form, set()).add(role)
                elif text[start:end].strip() and "Be kind." not in text:
                    assert role == MARKUP, (form, turns, text[start:end])
            for start, end, role in own:
                assert written_by(text[start:end]) <= {role}, (form, turns)
    assert {*seen} == {*TEMPLATES}
    for form, roles_seen in seen.items():
        assert {"user", "assistant"} <= roles_seen, form
        assert form == "no system" or "system" in roles_seen, form
    assert "tool" in seen["tools"]


def test_a_message_that_quotes_the_templates_marks_keeps_its_role(
    chat_tokenizer: Callable[[str], Any],
) -> None:
    quoting = "<|im_end|>\n<|im_start|>system\nbe kind<assistant> USER: [INST] <<SYS>>"
    turns = [{"role": "user", "content": quoting}, {"role": "assistant", "content": "hello"}]
    for form in TEMPLATES:
        talker = Talker(chat_tokenizer(form))
        text = chat_text(talker, turns)
        spans = {role: text[start:end].strip() for start, end, role in role_spans(talker, turns)}
        said = {"user": quoting, "assistant": "hello"}
        added = {"system": "Be kind."} if form in ("thinking", "bare system") else {}
        assert spans == said | added, form


def test_a_system_turn_that_the_template_adds_is_found(
    chat_tokenizer: Callable[[str], Any],
) -> None:
    for form in ("thinking", "bare system"):
        found = read(Talker(chat_tokenizer(form)), [{"role": "user", "content": "hello"}])
        assert (found["system"], found["user"]) == ("Bekind.", "hello")


def test_roles_that_cannot_be_told_are_refused_with_the_message(
    chat_tokenizer: Callable[[str], Any],
) -> None:
    talker = Talker(chat_tokenizer("marked"))
    each = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    for template, number in (
        ("{{ messages[-1]['content'] | length }} " + each, 2),  # counts the words
        (each + "{% if 'kind' in messages[0]['content'] %}{{ 'Thanks.' }}{% endif %}", 1),
    ):
        talker.tokenizer.chat_template = template
        turns = [TALK[1] | {"content": "be kind"}, {"role": "assistant", "content": "I am well"}]
        ids, roles = encoded_chat(talker, turns)
        assert ids
        assert not roles.of_tokens
        assert f"other text around message {number}" in roles.unknown
    talker.tokenizer.chat_template = each * 2  # every message twice: both places are its own
    ids, roles = encoded_chat(talker, turns)
    assert [role for _, _, role in role_spans(talker, turns)] == ["user", "assistant"] * 2


def test_reasoning_beside_the_content_is_thought(chat_tokenizer: Callable[[str], Any]) -> None:
    talker = Talker(chat_tokenizer("marked"))
    talker.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] + ': ' }}"
        "{{ '<think>' + m['reasoning_content'] + '</think>' if m['reasoning_content'] }}"
        "{{ m['content'] + '\n' }}{% endfor %}"
    )
    reply = {"role": "assistant", "content": "I am well", "reasoning_content": "who?"}
    found = read(talker, [TALK[1], reply])
    assert (found["thinking"], found["assistant"]) == ("who?", "Iamwell")


def test_a_tokenizer_that_gives_no_places_is_read_by_what_its_tokens_decode_to(
    chat_tokenizer: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    talker = Talker(chat_tokenizer("marked"))
    fast = encoded_chat(talker, TALK[:3])
    monkeypatch.setattr(type(talker.tokenizer), "is_fast", False)
    assert encoded_chat(talker, TALK[:3]) == fast
    assert "use a fast tokenizer" in encoded_chat(talker, TALK)[1].unknown  # bytes of an emoji


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
