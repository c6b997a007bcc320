"""A page of head scores that opens anywhere: one HTML file, offline, readable without scripts."""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from interp.errors import OptionError
from interp.files import write_atomically
from interp.plot import BINS, Range, Scale, Theme, declared_range, palette

if TYPE_CHECKING:
    from interp.table import HeadTable

# Every head as an element of its own, with a tooltip that needs no script, is about 150 bytes;
# beyond this many, a panel is a picture, and a script shows the numbers of the head pointed at
# (about 15 bytes); beyond the second limit the numbers are in the table's file only.
CELLS_AS_ELEMENTS = 30_000
CELLS_WITH_NUMBERS = 500_000
CATALOGUE = 3  # metrics of a model from which on the page says which heads are special

_READING = (
    "Rows are layers, 0 on top; columns are heads, counted from 0. ± is the standard error over"
    " the n prompts; no ± where a score is exact or there is one prompt. Null is the same score"
    " where there is nothing to find; in the bars it is the upright line. A grey cell has no score."
)


def write_report(
    table: HeadTable,
    path: str | os.PathLike,
    *,
    ranges: Mapping[str, Range] | None = None,
    title: str = "Attention heads",
    command: str | None = None,
    beside: Sequence[str] = (),
    top: int = 5,
) -> int:
    """Write the page of `render` at path, whole or not at all; returns its bytes.

    Raises StoreError when it cannot be written, and what `render` raises.
    """
    page = render(table, ranges=ranges, title=title, command=command, beside=beside, top=top)
    content = page.encode()
    write_atomically(Path(path), content)
    return len(content)


def render(
    table: HeadTable,
    *,
    ranges: Mapping[str, Range] | None = None,
    title: str = "Attention heads",
    command: str | None = None,
    beside: Sequence[str] = (),
    top: int = 5,
) -> str:
    """One HTML page: per model its provenance, top heads per metric, and heat maps.

    `ranges` gives each metric's colour range (low, high), None for an end without bound; a metric
    that has none is coloured by its own scores, and the page says so. `beside` names files in the
    same folder that the page links to. The same table gives the same bytes. Raises OptionError.
    """
    from interp.report.catalogue import section
    from interp.report.panel import panel
    from interp.report.words import provenance, top_heads

    if len(table) == 0:
        raise OptionError("the table has no rows, so there is nothing to show; score something")
    frame: Any = table.to_pandas()
    declared = {metric: declared_range(ranges or {}, metric) for metric in table.metrics}
    scales = {
        metric: Scale.fit(rows["score"], declared[metric])
        for metric, rows in frame.groupby("metric", sort=False)
    }
    style, script = _style(), _asset("hover.js")
    detail = 2 if len(table) <= CELLS_AS_ELEMENTS else int(len(table) <= CELLS_WITH_NUMBERS)
    out = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        # Nothing is fetched, and nothing runs but our own script: also if a name were to slip by.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:;'
        f" style-src '{_hash(style)}'; script-src '{_hash(script)}'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>",
        f"<header><h1>{escape(title)}</h1>",
        f"<p>{_count(len(table), 'score')}: {_count(len(table.models), 'model')},"
        f" {_count(len(table.metrics), 'metric')}.</p>",
        f"<p>Command: <code>{escape(command)}</code></p>" if command else "",
    ]
    if beside:
        links = (f'<a href="./{quote(name)}">{escape(name)}</a>' for name in beside)
        out.append(f"<p>The same numbers, in full: {', '.join(links)}</p>")
    if len(table.models) > 1:
        items = (f'<li><a href="#m{i}">{escape(m)}</a></li>' for i, m in enumerate(table.models))
        out.append(f'<nav aria-label="models"><ul>{"".join(items)}</ul></nav>')
    out.append(f"<p>{_READING}{_LESS[detail]}</p></header>\n<main>")
    made = table.provenance
    for at, (model, rows) in enumerate(frame.groupby("model", sort=False)):
        best = top_heads(table.where(model=str(model)), scales, top)
        out.append(f'<section id="m{at}"><h2>{escape(str(model))}</h2>')
        out.append(provenance({k[1]: v for k, v in made.items() if k[0] == model}))
        if rows["metric"].nunique() >= CATALOGUE:
            ends = {m: None if r is None else r[1] for m, r in declared.items()}
            special = section(table.where(model=str(model)), ends)
            out.append(f"<h3>Which heads are special</h3>{special}")
        out.append(f'<h3>Top heads</h3><div class="tops">{best}</div>')
        out.append('<h3>Every head</h3><div class="panels">')
        shapes = rows.groupby("stack")[["layer", "head"]].max() + 1
        several = len(shapes) > 1
        for (metric, stack), cells in rows.groupby(["metric", "stack"], sort=False):
            name = f"{metric} · {stack}" if several else str(metric)
            shape = int(shapes.loc[stack, "layer"]), int(shapes.loc[stack, "head"])
            options = {"scale": scales[metric], "bounded": _bounded(declared[metric])}
            out.append(panel(cells, name, shape=shape, detail=detail, **options))
        out.append("</div></section>")
    out.append(f"</main>\n<script>{script}</script>\n</body>\n</html>\n")
    return "\n".join(out)


_LESS = {
    2: "",
    1: " With this many heads a map is a picture: point at a head, or move with the arrow keys, to"
    " read its numbers (this needs scripts; the top heads above each map do not).",
    0: " With this many heads the maps are pictures only; the numbers are in the table's file.",
}


def _bounded(declared: Range | None) -> bool:
    return declared is not None and all(x is not None and math.isfinite(x) for x in declared)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _style() -> str:
    """The style sheet with the colours of both themes; print is always on white."""
    rules: dict[Theme, list[str]] = {"light": [], "dark": []}
    for theme, lines in rules.items():
        for letter, signed in (("q", False), ("d", True)):
            colours = palette(signed, theme)
            lines += [f".{letter}{at}{{fill:{colours[at]}}}" for at in range(BINS)]
            lines.append(f".bar-{letter}{{background:linear-gradient(90deg,{','.join(colours)})}}")
    dark = f"@media screen and (prefers-color-scheme:dark){{{''.join(rules['dark'])}}}"
    return f"{_asset('style.css')}\n{''.join(rules['light'])}\n{dark}\n"


def _asset(name: str) -> str:
    return resources("interp.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
