"""Rows of a task file, read and checked without torch and without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interp.core.documents import parse_json
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.text_file import read_lines

MEASURES = ("loss", "accuracy", "logit-difference", "answer-probability", "kl-to-clean")
FIELDS = ("prompt", "answer", "wrong", "corrupted", "position", "cluster", "roles")


def task_rows(source: str, measure: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a task file; none for `repeats` and for a .py file, which is not run."""
    if measure is not None and measure not in MEASURES:
        raise UnknownName("measure", measure, MEASURES)
    if source == "repeats":
        if measure not in (None, "loss"):
            raise OptionError(
                f"the task repeats measures the loss, not {measure}; give a task file"
            )
        return []
    path = Path(source)
    if path.suffix not in (".jsonl", ".txt", ".py"):
        raise OptionError(
            f"task {source!r} is not known; give 'repeats' or a .jsonl, .txt or .py file"
        )
    if not path.is_file():
        raise OptionError(f"the task file {source} does not exist")
    if path.suffix == ".py":
        if measure is not None:
            raise OptionError(f"{source} defines its own measure; omit the measure")
        return []
    rows = rows_of_lines(path)
    for name in FIELDS:
        lines = [line for line, row in zip(row_lines(path), rows, strict=True) if name not in row]
        if 0 < len(lines) < len(rows):
            raise PromptError(f"{path} line {lines[0]} has no {name!r}, others have")
    return rows


def row_lines(path: Path) -> list[int]:
    """Return the number of the line of each row, as an editor counts them."""
    return [number for number, line in enumerate(read_lines(path), 1) if line.strip()]


def rows_of_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a .jsonl or .txt file, of which some may have more fields than others."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        if path.suffix == ".txt":
            rows.append({"prompt": line})
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise PromptError(f"{path} line {number} is not valid JSON: {error}") from error
        if not isinstance(row, dict) or not ({"prompt", "text"} & set(row)):
            raise PromptError(f"{path} line {number} has no field 'prompt'")
        strange = sorted(set(row) - set(FIELDS) - {"text"})
        if strange:
            raise PromptError(
                f"{path} line {number} has the field {strange[0]!r}; known: {', '.join(FIELDS)}"
            )
        rows.append(row)
    if not rows:
        raise PromptError(f"{path} contains no prompts")
    return rows
