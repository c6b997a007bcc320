"""One heat map of a report: layers x heads of one metric, as SVG elements or as a small picture."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape
from typing import TYPE_CHECKING, Any

from interp.core.columns import number
from interp.draw.plot import Scale, Theme, palette, scale_ends, tooltip

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_LEFT, _TOP = 44, 34  # room for the numbers of layers and heads, and for their names
_NO_SCORE = {"light": "#b9b9b9", "dark": "#5a5f66"}


def panel(
    rows: pd.DataFrame,
    name: str,
    *,
    shape: tuple[int, int],
    scale: Scale,
    detail: int,
    data: str = "",
) -> str:
    """A figure: caption, map, colour bar, and the line where a script writes the head pointed at.

    detail 2: an element with a tooltip per head; 1: a picture and the numbers; 0: a picture.
    `data` is a link to the same numbers, as HTML.
    """
    import numpy as np

    n_layers, n_heads = shape
    # easy to hit with a finger; two maps of 64 heads beside each other
    cell = 24 if n_heads <= 16 and n_layers <= 24 else 16 if n_heads <= 32 else 9
    width, height = _LEFT + n_heads * cell + 2, _TOP + n_layers * cell + 2
    grid = np.full(shape, np.nan)
    grid[rows["layer"], rows["head"]] = rows["score"]
    bins = scale.bins(grid)
    family = "d" if scale.signed else "q"
    unit = str(rows["unit"].iloc[0])
    listed = _numbers(rows, shape) if detail == 1 else ""
    stack = escape(str(rows["stack"].iloc[0]))
    body = _cells(rows, bins, family, cell) if detail == 2 else _picture(bins, scale.signed, cell)
    what = f"{name}: heat map of {n_layers} layers by {n_heads} heads"
    keys = "; arrow keys move from head to head, Enter opens a head's card" if detail else ""
    low, high = scale_ends(scale)
    notes = []
    if scale.note:
        notes.append(scale.note)
    if scale.beyond(grid):
        notes.append(f"{scale.beyond(grid)} beyond the range, shown as its end")
    missing = int(np.isnan(grid).sum())
    if missing:
        notes.append(f"{missing} without a score")
    return (
        f'<figure><figcaption>{escape(name)} <span class="unit">{escape(unit)}</span>'
        f"{data}</figcaption>"
        f'<svg class="map" role="group" tabindex="0" aria-label="{escape(what + keys)}"'
        f' width="{width}" height="{height}" viewBox="0 0 {width} {height}" data-cell="{cell}"'
        f' data-heads="{n_heads}" data-layers="{n_layers}" data-unit="{escape(unit)}"'
        f' data-metric="{escape(str(rows["metric"].iloc[0]))}" data-stack="{stack}"{listed}>'
        f"{_axes(n_layers, n_heads, cell)}{body}</svg>"
        f'<div class="scale"><span>{low}</span><i class="bar bar-{family}"></i><span>{high}</span>'
        f'</div><p class="note">{"; ".join(notes)}</p><output aria-live="polite"></output>'
        "</figure>\n"
    )


def _axes(n_layers: int, n_heads: int, cell: int) -> str:
    def every(count: int) -> range:
        return range(0, count, next(s for s in (1, 2, 4, 8, 16, 64, 256, 4096) if count / s <= 16))

    xs = "".join(
        f'<text x="{_LEFT + (h + 0.5) * cell:g}" y="{_TOP - 6}">{h}</text>' for h in every(n_heads)
    )
    ys = "".join(
        f'<text x="{_LEFT - 6}" y="{_TOP + (y + 0.5) * cell + 4:g}" class="y">{y}</text>'
        for y in every(n_layers)
    )
    middle = _TOP + n_layers * cell / 2
    names = (
        f'<text class="axis" x="{_LEFT + n_heads * cell / 2:g}" y="{_TOP - 22}">head</text>'
        f'<text class="axis" transform="translate(12 {middle:g}) rotate(-90)">layer</text>'
    )
    return f'<g aria-hidden="true">{names}{xs}{ys}</g>'


def _cells(rows: pd.DataFrame, bins: np.ndarray, family: str, cell: int) -> str:
    out = []
    for row in rows.to_dict("records"):
        layer, head = row["layer"], row["head"]
        at = bins[layer, head]
        colour = "none" if at < 0 else f"{family}{at}"
        out.append(
            f'<rect x="{_LEFT + head * cell}" y="{_TOP + layer * cell}" width="{cell - 1}"'
            f' height="{cell - 1}" class="{colour}"><title>{escape(tooltip(row))}</title></rect>'
        )
    return "\n".join(out)


def _picture(bins: np.ndarray, signed: bool, cell: int) -> str:
    n_layers, n_heads = bins.shape
    box = f'x="{_LEFT}" y="{_TOP}" width="{n_heads * cell}" height="{n_layers * cell}"'
    themes: tuple[Theme, ...] = ("light", "dark")
    return "".join(
        f'<image class="{theme}" {box} preserveAspectRatio="none" href="data:image/png;base64,'
        f'{base64.b64encode(_png(bins, [*palette(signed, theme), _NO_SCORE[theme]])).decode()}"/>'
        for theme in themes
    )


def _png(bins: np.ndarray, colours: list[str]) -> bytes:
    """A picture with one pixel per head and a palette; -1 is the last colour (PNG, RFC 2083)."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    height, width = bins.shape
    pixels = (bins % len(colours)).astype("uint8")
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + chunk(b"PLTE", b"".join(bytes.fromhex(colour[1:]) for colour in colours))
        + chunk(b"IDAT", zlib.compress(lines, 9))
        + chunk(b"IEND", b"")
    )


def _numbers(rows: pd.DataFrame, shape: tuple[int, int]) -> str:
    """Per head, row by row: score, error, null; and n, once where all heads have the same."""
    size = shape[0] * shape[1]
    places = (rows["layer"] * shape[1] + rows["head"]).tolist()

    def listed(values: Any, spell: Any) -> str:
        texts = [""] * size
        for at, value in zip(places, values, strict=True):
            texts[at] = "" if value != value else spell(value)  # noqa: PLR0124
        return "" if not any(texts) else ",".join(texts)

    counts = rows["n"].unique()
    n = str(counts[0]) if len(counts) == 1 else listed(rows["n"].tolist(), str)
    return (
        f' data-score="{listed(rows["score"].tolist(), _short)}"'
        f' data-sem="{listed(rows["sem"].tolist(), _short_error)}"'
        f' data-null="{listed(rows["null"].tolist(), _short)}" data-n="{n}"'
    )


def _short(value: float) -> str:
    return number(value).replace("0.", ".", 1) if abs(value) < 1 else number(value)


def _short_error(value: float) -> str:
    return f"{value:.2g}".replace("0.", ".", 1) if value < 1 else f"{value:.2g}"
