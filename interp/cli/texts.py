"""Texts of the commands that explain tokens, and their checks."""

from __future__ import annotations

from pathlib import Path

from interp.core.errors import OptionError, PromptError


def asked_texts(text: str | None, file: Path | None) -> list[str]:
    """Return the texts to explain."""
    if (text is None) == (file is None):
        raise OptionError("give one --text, or --file with one text per line")
    if text is not None and not text.strip():
        raise OptionError("the text is empty; give at least one word")
    from interp.attribution.evaluation.run import read_texts

    return read_texts([text] if text is not None else file)  # type: ignore[list-item]


def require_tokens(special, text: str) -> None:
    """Raise PromptError unless at least two tokens are not special."""
    n = int((~special).sum())
    if n < 2:
        raise PromptError(
            f"{text!r} has {n} token(s) that are not special, so there is nothing to compare; "
            f"give a longer text"
        )
