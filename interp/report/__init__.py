"""A page of head scores that opens anywhere: one HTML file, offline, readable without scripts."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from interp.core.errors import OptionError
from interp.core.files import write_atomically
from interp.draw.plot import BINS, Range, Scale, Theme, declared_range, palette

if TYPE_CHECKING:
    from interp.core.table import HeadTable

# Every head as an element of its own, with a tooltip that needs no script, is about 150 bytes;
# beyond this many, a panel is a picture, and a script shows the numbers of the head pointed at
# (about 15 bytes); beyond the second limit the numbers are in the table's file only.
CELLS_AS_ELEMENTS = 30_000
CELLS_WITH_NUMBERS = 500_000
BUDGET = 10_000_000  # bytes of a page: what a browser opens and a mail carries without trouble
CATALOGUE = 3  # metrics of a model from which on the page says which heads are special

_READING = (
    "Rows are layers, 0 on top; columns are heads, counted from 0. ± is the standard error over"
    " the n prompts, or over clusters of them that share something; no ± where a score is exact or"
    " there is one cluster. Null is the same score where there is nothing to find, ± the error of"
    " that mean; in the bars it is the upright line. A grey cell has no score."
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
    by: str = "end",
    budget: int = BUDGET,
) -> int:
    """Write the page of `render` at path, whole or not at all; returns its bytes.

    Raises StoreError when it cannot be written, and what `render` raises.
    """
    page = render(
        table,
        ranges=ranges,
        title=title,
        command=command,
        beside=beside,
        top=top,
        by=by,
        budget=budget,
    )
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
    by: str = "end",
    budget: int = BUDGET,
) -> str:
    """One HTML page: findings, models side by side, and per model its provenance, maps, top heads.

    `ranges` gives each metric's colour range (low, high), None for an end without bound; a metric
    that has none is coloured by its own scores, and the page says so. `beside` names files in the
    same folder that the page links to. `by` is the order of top heads, as of `HeadTable.top`.
    `budget` is the size in bytes that the page keeps to by
    drawing its maps with less detail; it says so. The same table gives the same bytes.

    Raises OptionError: an empty table, or one that no detail brings within the budget.
    """
    if len(table) == 0:
        raise OptionError("the table has no rows, so there is nothing to show; score something")
    frame: Any = table.to_pandas()
    declared = {metric: declared_range(ranges or {}, metric) for metric in table.metrics}
    scales = {
        metric: Scale.fit(rows["score"], declared[metric])
        for metric, rows in frame.groupby("metric", sort=False)
    }
    head = _head(table, title, command, beside)
    text = _first(table, frame, scales, declared)
    levels = [level for level in _DETAIL if level <= _by_count(len(table))]
    page = ""
    for level in levels:
        body = _models(table, frame, scales, declared, level=level, top=top, by=by)
        note = "" if level == levels[0] else _OVER.format(budget / 1e6)
        page = f"{head}<p>{_READING}{_LESS[level]}{note}</p></header>\n<main>\n{text}\n{body}"
        page += f"</main>\n<script>{_script()}</script>\n</body>\n</html>\n"
        if len(page.encode()) <= budget:
            return page
    raise OptionError(
        f"a page of these {len(table):,} scores takes {len(page.encode()) / 1e6:.3g} MB with the"
        f" least detail, more than {budget / 1e6:g} MB; give fewer models or metrics, or a larger"
        " budget"
    )


def _by_count(scores: int) -> int:
    """The most detail that so many scores are drawn with."""
    return 3 if scores <= CELLS_AS_ELEMENTS else 1 if scores <= CELLS_WITH_NUMBERS else 0


def _head(table: HeadTable, title: str, command: str | None, beside: Sequence[str]) -> str:
    style, script = _style(), _script()
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
    places = {"findings": "Findings"}
    if len(table.models) > 1:
        places["beside"] = "Models side by side"
    places |= {f"m{i}": model for i, model in enumerate(table.models)}
    items = (f'<li><a href="#{at}">{escape(name)}</a></li>' for at, name in places.items())
    out.append(f'<nav aria-label="contents"><ul>{"".join(items)}</ul></nav>')
    return "\n".join(out)


def _first(
    table: HeadTable,
    frame: Any,
    scales: Mapping[str, Scale],
    declared: Mapping[str, Range | None],
) -> str:
    """What is read before any model: which heads are what, and the models beside each other."""
    from interp.report.findings import findings
    from interp.report.side import side_by_side

    out = [f'<section id="findings"><h2>Findings</h2>{findings(table, _ends(declared))}</section>']
    if len(table.models) > 1:
        beside = side_by_side(frame, scales) or "<p>They have no metric in common.</p>"
        out.append(
            '<section id="beside"><h2>Models side by side</h2><p>One scale per metric; layers by'
            f' relative depth.</p><div class="panels">{beside}</div></section>'
        )
    return "\n".join(out)


def _models(
    table: HeadTable,
    frame: Any,
    scales: Mapping[str, Scale],
    declared: Mapping[str, Range | None],
    *,
    level: int,
    top: int,
    by: str,
) -> str:
    from interp.draw.panel import panel
    from interp.report.catalogue import section
    from interp.report.every import download, every_number
    from interp.report.words import provenance, top_heads

    out, made = [], table.provenance
    for at, (model, rows) in enumerate(frame.groupby("model", sort=False)):
        best = top_heads(table.where(model=str(model)), scales, top, by)
        out.append(f'<section id="m{at}"><h2>{escape(str(model))}</h2>')
        out.append(provenance({k[1]: v for k, v in made.items() if k[0] == model}))
        if level >= 0:
            out.append('<h3>Every head</h3><div class="panels">')
            shapes = rows.groupby("stack")[["layer", "head"]].max() + 1
            several = len(shapes) > 1
            for (metric, stack), cells in rows.groupby(["metric", "stack"], sort=False):
                name = f"{metric} · {stack}" if several else str(metric)
                shape = int(shapes.loc[stack, "layer"]), int(shapes.loc[stack, "head"])
                options = {"scale": scales[metric]}
                data = download(cells, f"{model} {name}") if level > 2 else ""
                detail = min(level, 2)
                out.append(panel(cells, name, shape=shape, detail=detail, data=data, **options))
            out.append('</div><aside class="card" aria-label="head card" hidden></aside>')
        if rows["metric"].nunique() >= CATALOGUE:
            special = section(table.where(model=str(model)), _ends(declared))
            out.append(f"<h3>Which heads are special</h3>{special}")
        out.append(f'<h3>Top heads</h3><div class="tops columns">{best}</div>')
        if level > 2:
            out.append(every_number(rows))
        out.append("</section>")
    return "\n".join(out)


# With each level a page says and weighs less.
_DETAIL = (3, 2, 1, 0, -1)
_LESS = {
    3: "",
    2: " The table of every number, and the CSV of each map, are left out here.",
    1: " With this many heads a map is a picture: point at a head, or move with the arrow keys, to"
    " read its numbers (this needs scripts; the tables of top heads do not).",
    0: " With this many heads the maps are pictures only; the numbers are in the table's file.",
    -1: " With this many heads there are no maps; the numbers are in the table's file.",
}
_OVER = " With more detail the page would be larger than {:g} MB."


def _ends(declared: Mapping[str, Range | None]) -> dict[str, float | None]:
    return {metric: None if found is None else found[1] for metric, found in declared.items()}


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


def _script() -> str:
    return _asset("hover.js") + _asset("cards.js")


def _asset(name: str) -> str:
    return resources("interp.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
