"""A panic inside a tokenizer, which is no `Exception`, is one error wherever texts are encoded."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import interp
from interp.core.errors import PromptError

PANIC = type("PanicException", (BaseException,), {})


class Panics:
    """A tokenizer whose package panics while it encodes."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, *texts: object, **options: object) -> dict:
        raise self.error


@pytest.fixture
def induction_model():
    return interp.load("bundled:induction")


def test_scoring_a_text_names_the_tokenizer(induction_model, monkeypatch) -> None:
    monkeypatch.setattr(induction_model, "tokenizer", Panics(PANIC("called `unwrap()`\non `None`")))
    with pytest.raises(PromptError, match="the tokenizer failed inside"):
        interp.score(induction_model, "entropy", prompts=["the red dog"], null="none")


def test_an_interrupt_passes(induction_model, monkeypatch) -> None:
    monkeypatch.setattr(induction_model, "tokenizer", Panics(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        interp.score(induction_model, "entropy", prompts=["the red dog"], null="none")


def test_every_text_is_encoded_in_one_place() -> None:
    root = Path(interp.__file__).parent
    direct = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in root.rglob("*.py")
        if path != root / "core" / "tokens.py"
        if re.search(r"\btokenizer\(", text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", None)) == "tokenizer"
    ]
    assert not direct, f"call interp.core.tokens.encoded_text instead: {direct}"
