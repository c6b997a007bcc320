"""Attributions in a terminal, and their output files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.written import as_given
from interp.core.errors import OptionError
from interp.core.files import write_atomically

if TYPE_CHECKING:
    from interp.attribution.declaration import BoundMethod
    from interp.attribution.result import Attribution

_NAME = click.Path(path_type=Path, dir_okay=False)


ENDS = (".html", ".json", ".csv")


def files_option(ends: Sequence[str]) -> Callable[[Callable], Callable]:
    """Return the option --out of commands that write several files, each of its own format."""

    def by_end(ctx: click.Context, parameter: click.Parameter, value: tuple[Path, ...]) -> Any:
        found = {path.suffix.lower(): path for path in value}
        for end, path in found.items():
            if end not in ends:
                raise OptionError(f"{path} has no known ending; known: {', '.join(ends)}")
        if len(found) < len(value):
            raise OptionError("--out names two files of one format; name one of each")
        return found

    kinds = ", ".join(ends)
    return click.option(
        "-o", "--out", multiple=True, type=_NAME, callback=by_end, metavar="FILE",
        help=f"Write the result to this file, in the format of its ending: {kinds}. Repeatable.",
    )  # fmt: skip


def file_options(function: Callable) -> Callable:
    """Add --out, --top and --quiet."""
    options = (
        files_option(ENDS),
        click.option("--top", default=5, show_default=True, type=click.IntRange(0), metavar="K",
            help="Number of largest scores to print."),
        click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def write_attributions(
    found: Sequence[Attribution],
    out: Mapping[str, Path],
    *,
    title: str,
    warning: str,
) -> None:
    """Write the requested files, each atomically."""
    if html := out.get(".html"):
        from interp.report.tokens import attribution_page

        page = attribution_page(found, title=title, command=as_given(), warning=warning)
        write_atomically(html, page.encode())
    if json_file := out.get(".json"):
        whole: dict[str, Any] = {"warning": warning, "attributions": [f.to_dict() for f in found]}
        write_atomically(json_file, (json.dumps(whole, indent=1, default=str) + "\n").encode())
    if csv := out.get(".csv"):
        import pandas as pd

        frames = [f.wide().assign(text=f.provenance.get("text", 0)) for f in found]
        write_atomically(csv, pd.concat(frames).to_csv(index=False).encode())


def standing_warning(chosen: Sequence[BoundMethod]) -> str:
    """Return the warning from `bundled:deceive` about the chosen pattern-based methods."""
    from interp.attribution.evaluation.deceived import deceived

    reading = [c for c in chosen if c.method.needs == "patterns"]
    return deceived(reading, 8).warning if reading else ""
