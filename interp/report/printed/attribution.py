"""Attributions on a terminal: coloured tokens, the largest scores, the residual."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from interp.attribution.result import Attribution


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
