"""Figures for papers: files with a font, a size and a caption of your choice."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from interp.core.display import Displayed
from interp.core.errors import OptionError, UnknownName
from interp.core.files import write_atomically
from interp.core.result_files import FIGURES
from interp.draw.figure import WIDE, svg
from interp.draw.svg import element, standing

POINTS = 72  # of an inch
PIXELS = 300  # of an inch of a PNG
LETTER = 12.0  # size of letters in the units of a figure of this package
_LINE = 1.35  # height of a line of the caption, in sizes of its letters


def save_figure(
    figure: Any,
    path: str | os.PathLike,
    *,
    width: float = 6.5,
    font: str = "sans-serif",
    size: float = 8.0,
    caption: str = "",
) -> None:
    """Write a figure as SVG, PDF or PNG for a paper; matplotlib and a browser are not needed.

    Args:
        figure: A plotly figure of this package, such as that of `result.plot()`, or an SVG as text,
            such as `circuit.to_svg()`.
        path: The file, .svg, .pdf or .png (300 pixels per inch). PDF and PNG need
            `pip install interp[pdf]`.
        width: Width in inches; the height follows.
        font: Family of all letters.
        size: Size of most letters in points; those of an SVG that is given keep their proportion.
        caption: A line below the figure, wrapped at its width.

    Raises:
        UnknownName: The suffix is another one.
        OptionError: A size is not positive, or CairoSVG is not there.
        StoreError: The file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in FIGURES:
        raise UnknownName("file format of a figure", path.suffix or path.name, FIGURES)
    if not (width > 0 and size > 0):
        raise OptionError(f"width={width:g} inches and size={size:g} points; both are above 0")
    units = width * POINTS / size * LETTER
    drawn = (
        figure
        if isinstance(figure, str)
        else standing(svg(figure, wide=units, vector=True), style=True)
    )
    text = _sized(str(drawn), width, font, size, caption)
    write_atomically(path, text.encode() if suffix == ".svg" else _converted(text, suffix[1:]))


def save_vector(result: Displayed, path: Path) -> None:
    """Write the figure of a result in the format of the suffix."""
    to_svg = getattr(result, "to_svg", None)
    save_figure(result.plot() if to_svg is None else to_svg(), path)  # type: ignore[attr-defined]


def _sized(drawn: str, width: float, font: str, size: float, caption: str) -> str:
    """Give an SVG its width in inches, its letters, and a caption below it."""
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
    wide, high = (float(x) for x in box.groups()) if box else (float(WIDE), 450.0)
    letter = size / POINTS / width * wide  # in the units of the picture
    drawn = re.sub(r"font:12px [\w-]+", f"font:12px {_name(font)}", drawn)
    drawn = re.sub(r'font-family="[^"]*"', f'font-family="{_name(font)}"', drawn)
    lines = _wrapped(caption, int(wide / (0.5 * letter))) if caption else []
    tall = high + len(lines) * _LINE * letter + (0.4 * letter if lines else 0)
    style = {"font_size": f"{letter:.2f}", "font_family": font, "fill": "#1b1f23"}
    texts = Markup("").join(
        element("text", line, x=0, y=round(high + (i + 0.9) * _LINE * letter, 1), **style)
        for i, line in enumerate(lines)
    )
    head, _, rest = drawn.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    head = re.sub(r'viewBox="[^"]*"', f'viewBox="0 0 {wide:g} {tall:g}"', head)
    sides = f' width="{width:g}in" height="{width * tall / wide:.4g}in"'
    return f"{head}{sides}>{rest.rstrip().removesuffix('</svg>')}{texts}</svg>\n"


def _name(font: str) -> str:
    """Return a font's name as it may stand in a style sheet."""
    if not re.fullmatch(r"[\w ,'-]+", font):
        raise OptionError(f"font={font!r}: give the name of a font, such as Helvetica")
    return str(escape(font))


def _wrapped(text: str, most: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(most, 20))


def _converted(text: str, form: str) -> bytes:
    """Return an SVG as PDF or PNG."""
    cairosvg = converter(form)
    write = cairosvg.svg2pdf if form == "pdf" else partial(cairosvg.svg2png, dpi=PIXELS)
    content = write(bytestring=text.encode(), unsafe=False)
    assert content is not None
    return content


def converter(form: str) -> Any:
    """Import the library that writes PDF and PNG; raises OptionError."""
    try:
        import cairosvg
    except (ImportError, OSError) as error:  # OSError: libcairo is not there
        raise OptionError(
            f"a {form.upper()} needs CairoSVG: pip install interp[pdf], and the library cairo of "
            f"the system ({error}); or save the figure as .svg"
        ) from error
    return cairosvg
