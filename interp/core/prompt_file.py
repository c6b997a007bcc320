"""Text of a file of prompts, read without torch."""

from __future__ import annotations

from pathlib import Path

from interp.core.errors import PromptError


def prompt_text(path: Path) -> str:
    """Return the text of a file of prompts.

    Raises:
        PromptError: the file is missing, empty or not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PromptError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
    if not text.strip():
        raise PromptError(f"{path} holds no text")
    return text
