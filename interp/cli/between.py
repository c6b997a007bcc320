"""Options, model loading and files of the commands that compare models."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.loading import Loading, source_labels
from interp.cli.progress import Voice
from interp.cli.written import folder_for
from interp.core.json_document import rows_text
from interp.core.prompt_file import FilePrompts, read_prompt_file

if TYPE_CHECKING:
    from interp.core.result import Result
    from interp.model.model import Model

OPTIONS = (
    click.option(
        "--file",
        "prompt_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="File of prompts, one per line, which every model reads by its own tokenizer, or "
        ".jsonl with a cluster for each; random tokens repeated twice by default.",
    ),
    click.option(
        "-o",
        "--out",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder for the results: a folder per comparison with a page and tables.",
    ),
    click.option("--seed", default=0, show_default=True, help="Seed of the random prompts."),
    click.option(
        "--batch-size",
        default=16,
        show_default=True,
        type=click.IntRange(1),
        help="Prompts per forward pass; does not affect the numbers.",
    ),
    click.option("--json", "form", flag_value="json", help="Print only the rows, as JSON."),
    click.option("--csv", "form", flag_value="csv", help="Print only the rows, as CSV."),
    click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes."),
)


def comparison_options(top: int) -> Callable[[Callable], Callable]:
    """Return a decorator that adds the options of `interp compare` and `interp cache`.

    Args:
        top: default of --top.
    """
    printed = click.option(
        "--top",
        default=top,
        show_default=True,
        type=click.IntRange(0),
        metavar="K",
        help="Number of heads to print, of each metric.",
    )

    def add(function: Callable) -> Callable:
        for option in reversed((printed, *OPTIONS)):
            function = option(function)
        return function

    return add


def voice_of(quiet: bool) -> Voice:
    """Return the notes of a command."""
    return Voice.of_command(quiet=quiet)


def prompts_of_file(path: Path | None) -> FilePrompts | None:
    """Return the prompts of a file; None without a file.

    Raises:
        PromptError: the file is missing, is not UTF-8, holds no text, or a line of a `.jsonl` file
            is not a prompt.
    """
    return None if path is None else read_prompt_file(path)


def loaded_models(sources: Sequence[str], loading: Loading, voice: Voice) -> list[Model]:
    """Load and check models in order; a source that is named twice is loaded once."""
    found: dict[str, Model] = {}
    for source, name in source_labels(sources).items():
        with voice.bars(name) as tell:
            found[source] = loading.checked(source, name, tell)
    return [found[source] for source in sources]


def printed_rows(result: Result, form: str) -> None:
    """Print all rows of a result, as JSON or CSV."""
    click.echo(rows_text(result.to_pandas(), form), nl=False)


def write_files(
    result: Result, out: Path, name: str, stem: str, about: Mapping[str, Any], voice: Voice
) -> Path:
    """Write page, Parquet and CSV of a result into a folder of its own; return the folder."""
    folder = folder_for(out, name, f"{stem}.html", about)
    for suffix in (".parquet", ".csv", ".html"):
        result.save(folder / f"{stem}{suffix}")
    voice.note(f"{folder}: {stem}.html (open it in a browser), {stem}.parquet, {stem}.csv")
    return folder


def interval_text(row: Mapping[str, Any], form: str) -> str:
    """Format the interval of a row, or "too few" where there is none for that reason."""
    if math.isnan(row["low"]):
        return "too few" if row["why_no_interval"].startswith("too few") else ""
    return f"{row['low']:{form}} to {row['high']:{form}}"


def interval_notes(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line on the rows without an interval for each reason, the most frequent first."""
    found = Counter(x for row in rows if (x := row["why_no_interval"]).startswith("too few"))
    return [
        f"  no interval of {count} head{'s' * (count != 1)}, {why}"
        for why, count in found.most_common()
    ]


def aligned_columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Format rows of cells in columns."""
    width = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    lines = (
        "  ".join(f"{cell:<{w}}" for cell, w in zip(row, width, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(indent + line for line in lines)
