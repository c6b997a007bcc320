"""Attributions in a terminal, and their output files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.written import OUT_FILE, OutFile, as_given
from interp.core.files import write_atomically

if TYPE_CHECKING:
    from interp.attribution.declaration import BoundMethod
    from interp.attribution.result import Attribution


def file_options(function: Callable) -> Callable:
    """Add --html, --json, --csv, --top and --quiet."""
    file: dict[str, Any] = {"type": OUT_FILE, "metavar": "FILE"}
    page: dict[str, Any] = {"type": OutFile("attribution.html"), "metavar": "FILE"}
    options = (
        click.option("--html", **page, help="Write a self-contained HTML page to "
            "this file; .html is added to a name without it."),
        click.option("--json", "json_file", **file, help="Write JSON to this file."),
        click.option("--csv", **file, help="Write CSV with a row per token to this file."),
        click.option("--top", default=5, show_default=True, type=click.IntRange(0), metavar="K",
            help="Number of largest scores to print."),
        click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def print_attribution(one: Attribution, top: int) -> None:
    """Print one attribution: the target, the coloured tokens, the largest scores, the residual."""
    from rich.console import Console
    from rich.text import Text

    from interp.core.tokens import shown, visible
    from interp.draw.colours import palette
    from interp.report.tokens import scale_of

    if text := one.provenance.get("prompt"):
        click.echo(f"text: {shown(str(text))}")
    console = Console(highlight=False, soft_wrap=True)
    scale = scale_of(one)
    colours = palette(scale.signed, "light")
    unit = one.provenance.get("unit", "")
    click.echo(visible(f"{one.method}: {one.target} = {one.value:.4g} {unit}").rstrip())
    line = Text("  ")
    for token, at, special in zip(one.tokens, scale.bins(one.scores), one.special, strict=True):
        dark = abs(at - (16 if scale.signed else 0)) > (9 if scale.signed else 18)
        ink = "white" if dark else "black"
        line.append(shown(token), style=f"{'italic ' if special else ''}{ink} on {colours[at]}")
        line.append(" ")
    console.print(line)
    for i, token, score in one.largest(top):
        click.echo(f"  {i:>4}  {score:>+11.4g}  {shown(token)}")
    for key, value in one.notes.items():
        if isinstance(value, (str, int, float)):
            click.echo(f"  {key}: {f'{value:.4g}' if isinstance(value, float) else value}")
    click.echo(f"  {one.completeness}\n")


def write_attributions(
    found: Sequence[Attribution],
    *,
    html: Path | None,
    json_file: Path | None,
    csv: Path | None,
    title: str,
    warning: str,
) -> None:
    """Write the requested files, each atomically."""
    if html is not None:
        from interp.report.tokens import attribution_page

        page = attribution_page(found, title=title, command=as_given(), warning=warning)
        write_atomically(html, page.encode())
    if json_file is not None:
        whole: dict[str, Any] = {"warning": warning, "attributions": [f.to_dict() for f in found]}
        write_atomically(json_file, (json.dumps(whole, indent=1, default=str) + "\n").encode())
    if csv is not None:
        import pandas as pd

        frames = [f.wide().assign(text=f.provenance.get("text", 0)) for f in found]
        write_atomically(csv, pd.concat(frames).to_csv(index=False).encode())


def standing_warning(chosen: Sequence[BoundMethod]) -> str:
    """Return the warning from `bundled:deceive` about the chosen pattern-based methods."""
    from interp.attribution.evaluation.deceived import deceived

    reading = [c for c in chosen if c.method.needs == "patterns"]
    return deceived(reading, 8).warning if reading else ""
