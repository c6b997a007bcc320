"""Attributions as text: coloured tokens, the largest scores, the residual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.attribution.result import Attribution


def attribution_text(results: Sequence[Attribution], *, top: int = 5) -> str:
    """Format attributions; tokens are coloured where standard output is a terminal.

    Args:
        results: the attributions.
        top: number of largest scores to print.
    """
    return "\n".join(_one(result, top) for result in results)


def _one(one: Attribution, top: int) -> str:
    """Format the target, the coloured tokens, the largest scores, and the residual."""
    from rich.console import Console
    from rich.text import Text

    from interp.core.tokens import coloured, shown, visible
    from interp.draw.colours import palette
    from interp.report.tokens import scale_of

    text = one.provenance.get("prompt")
    lines = [f"text: {shown(str(text))}"] if text else []
    console = Console(highlight=False, soft_wrap=True)
    scale = scale_of(one)
    colours = palette(scale.signed, "light")
    unit = one.provenance.get("unit", "")
    lines.append(visible(f"{one.method}: {one.target} = {one.value:.4g} {unit}").rstrip())
    line = Text("  ")
    for token, at, special in zip(one.tokens, scale.bins(one.scores), one.special, strict=True):
        dark = abs(at - (16 if scale.signed else 0)) > (9 if scale.signed else 18)
        ink = "white" if dark else "black"
        line.append(shown(token), style=f"{'italic ' if special else ''}{ink} on {colours[at]}")
        line.append(" ")
    with console.capture() as drawn:
        console.print(line)
    lines.append(coloured(drawn.get().removesuffix("\n")))
    for i, token, score in one.largest(top):
        lines.append(f"  {i:>4}  {score:>+11.4g}  {shown(token)}")
    for key, value in one.notes.items():
        if isinstance(value, (str, int, float)):
            lines.append(f"  {key}: {f'{value:.4g}' if isinstance(value, float) else value}")
    return "\n".join([*lines, f"  {one.completeness}", ""])
