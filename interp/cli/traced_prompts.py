"""Prompts and files of the commands that trace what heads read and write."""

from __future__ import annotations

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
    """Return the given texts, or random tokens repeated twice if none are given."""
    from interp.core.prompts import from_file, repeats

    if text is not None and file is not None:
        asked_texts(text, file)  # refuses both
    if text is not None:
        return [text]
    if file is not None:
        return from_file(file, model, context=model.context)
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
