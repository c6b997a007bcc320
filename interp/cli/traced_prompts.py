"""Prompts and files of the commands that trace what heads read and write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.cli.texts import asked_texts

if TYPE_CHECKING:
    from interp.cli.progress import Voice
    from interp.core.prompts import Prompts
    from interp.core.result import Result
    from interp.model.model import Model


def traced_prompts(
    model: Model, text: str | None, file: Path | None, n: int, seed: int, voice: Voice
) -> Prompts | Any:
    """Return the text, the lines of the file, or random tokens repeated twice if none are given."""
    from interp.core.prompts import from_file, repeats

    if text is not None and file is not None:
        asked_texts(text, file)  # refuses both
    if text is not None:
        return [text]
    if file is not None:
        return from_file(file, model)
    voice.note(f"no text given: {n} prompts of random tokens repeated twice")
    return repeats(model, n=n, seed=seed)


def saved_in(out: Path | None, model: str, found: Result, stem: str, voice: Voice) -> None:
    """Write a result to a folder as JSON, CSV and a page, and say so."""
    if out is None:
        return
    from interp.cli.written import model_folder

    folder = model_folder(out, model)
    ends = ("json", "csv", "html")
    for end in ends:
        found.save(folder / f"{stem}.{end}")
    voice.note(f"{folder}: {', '.join(f'{stem}.{end}' for end in ends)}")


def aligned_table(table: Sequence[Sequence[str]]) -> str:
    """Format rows of cells as text with the first columns to the left and numbers to the right."""
    width = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    text = [
        all(not _number(row[i]) for row in table[1:]) for i in range(len(width))
    ]  # columns of words
    return "\n".join(
        "  "
        + "  ".join(
            f"{cell:<{w}}" if words else f"{cell:>{w}}"
            for cell, w, words in zip(row, width, text, strict=True)
        ).rstrip()
        for row in table
    )


def _number(cell: str) -> bool:
    return cell[:1] in "+-0123456789" and cell[-1:].isdigit()
