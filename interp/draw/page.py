"""Shell of every page: its style, security policy, escaping and tables."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from interp.core.csv_rows import csv_text
from interp.core.tokens import visible
from interp.draw.svg import element

if TYPE_CHECKING:
    import jinja2
    import pandas as pd
    import plotly.graph_objects as go

ROWS = 1_000  # of a table on a page
CSV = 400_000  # bytes of a table as data in a page


def render(
    template: str,
    title: str,
    *,
    scripts: Sequence[str | tuple[str, ...]] = (),
    styles: str = "",
    **context: Any,
) -> str:
    """Fill a template that extends `page.jinja2`, which escapes all texts.

    Characters that would reorder or hide the text around them are named.
    """
    context = _DEFAULTS | context
    script = Markup("".join(map(_script, scripts and ("make", *scripts))))
    context |= {"title": title, "style": Markup(style_sheet() + styles), "script": script}
    return visible(_templates().get_template(f"{template}.jinja2").render(context))


def _script(name: str | tuple[str, ...]) -> str:
    if isinstance(name, str):
        return asset(f"{name}.js")
    return "(() => {\n" + "".join(asset(f"{one}.js") for one in name) + "})();\n"


def phrased(name: str, *values: Any) -> Markup:
    """Fill a macro of `parts.jinja2`, which escapes all texts."""
    return Markup(getattr(_templates().get_template("parts.jinja2").module, name)(*values).strip())


_DEFAULTS: dict[str, Any] = {
    "command": None,
    "beside": (),
    "made": None,
    "about": "",
    "warnings": (),
    "figure": None,
    "live": None,
    "heading": "",
}


def page(
    title: str,
    figure: go.Figure | Markup | None,
    parts: Iterable[Sequence[Any]],
    made: Mapping[str, Any] | Sequence[Any] | None,
    *,
    heading: str,
    **context: Any,
) -> bytes:
    """Return a page of sections as UTF-8."""
    if figure is not None and not isinstance(figure, Markup):
        from interp.draw.figure import svg

        figure = svg(figure)
    sections = section_contents(parts)
    scripts = ["slider"] if figure is not None and "data-rank" in figure else []
    context |= {"figure": figure, "parts": sections, "made": made, "heading": heading}
    return render("result", title, scripts=scripts, **context).encode()


def section_contents(parts: Iterable[Sequence[Any]]) -> list[tuple[str, list[Markup]]]:
    """Return headings with their contents as elements; see `page`."""
    return [(head, [_shown(x) for x in contents]) for head, *contents in parts]


def _shown(content: Any) -> Markup:
    if hasattr(content, "__html__"):
        return Markup(content.__html__())
    return element("p", content) if isinstance(content, str) else _noted_table(content)


@cache
def _templates() -> jinja2.Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("interp.draw"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "digest": policy_hash,
        "stored": stored,
        "pairs": pair_list,
        "thousands": "{:,}".format,
    }
    return environment


@cache
def asset(name: str) -> str:
    """Read a style sheet or script."""
    return files("interp.draw").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def style_sheet() -> str:
    """Return the style sheet with the colours of both themes; print is always on white."""
    from interp.draw.colours import rules

    dark = f"@media screen and (prefers-color-scheme:dark){{{rules('dark')}}}"
    return f"{asset('style.css')}\n{rules('light')}\n{dark}\n"


def policy_hash(text: str) -> str:
    """Return the hash by which a security policy allows a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def text(x: object) -> str:
    """Escape plain text where plotly would read markup."""
    return str(x).replace("&", "&amp;").replace("<", "&lt;")


def table(
    columns: Sequence[str | Markup | tuple[str, str]],
    rows: Iterable[Sequence[Any]],
    caption: str = "",
    unit: Any = "",
    kind: str | None = None,
    headed: bool = True,
) -> Markup:
    """Return rows as an HTML table."""
    named = [
        c if isinstance(c, tuple) else (c[1:], "words") if c[:1] == "." else (c, None)
        for c in columns
    ]
    head = [element("th", name, scope="col", class_=kind or None) for name, kind in named]
    body = (element("tr", *_cells(row, named, headed)) for row in rows)
    about = element("span", unit, class_="unit") if unit else ""
    above = element("caption", caption, " ", about) if caption or unit else ""
    inside = above, element("thead", element("tr", *head)), element("tbody", *body)
    return element("div", element("table", *inside, class_=kind), class_="scroll", tabindex=0)


def _cells(row: Sequence[Any], named: Sequence[tuple[Any, Any]], headed: bool) -> Iterator[Markup]:
    for at, (cell, (_, kind)) in enumerate(zip(row, named, strict=False)):
        if isinstance(cell, Markup) and cell.startswith(("<td", "<th")):
            yield cell
        elif at == 0 and headed:
            yield element("th", _spelled(cell), scope="row", class_=kind or None)
        else:
            yield element("td", _spelled(cell), class_=kind or None)


def html_table(frame: pd.DataFrame, unit: str = "") -> Markup:
    """Return a data frame as a table: numbers with four digits, texts aligned left."""
    first = frame.iloc[0] if len(frame) else frame.columns
    of = Markup(" ") + element("span", unit, class_="unit") if unit else ""
    columns = [
        (element("span", name, of) if name in _SCORES else name, "text" * isinstance(x, str))
        for name, x in zip(map(str, frame), first, strict=True)
    ]
    kind = "many" if len(columns) > _MANY else None
    return table(columns, frame.itertuples(index=False, name=None), headed=False, kind=kind)


_SCORES = ("score", "sem", "low", "high", "null")
_MANY = 8  # columns above which a table is set smaller on paper


def data_table(frame: pd.DataFrame, name: str) -> Markup:
    """Return a table with a link to its rows as CSV, and notes on omitted rows."""
    content, more = csv_text(frame), len(frame) - ROWS
    large = f"The rows as CSV exceed {CSV / 1e6:g} MB and are omitted here."
    link = element("p", large if len(content.encode()) > CSV else csv_link(content, name))
    rest = element("p", f"{more:,} more rows are not on this page.") if more > 0 else ""
    return link + _noted_table(frame) + rest


def _noted_table(frame: pd.DataFrame) -> Markup:
    """Return the columns that differ between rows as a table, and a note on the others."""
    varying, about, unit = _varying(frame)
    note = element("p", about, class_="note") if about else Markup("")
    return note + html_table(varying.head(ROWS), unit)


def _varying(frame: pd.DataFrame) -> tuple[pd.DataFrame, str, str]:
    """Return the columns that differ between rows, a note on the others, and the unit of scores."""
    if len(frame) < 2:
        return frame, "", ""
    text: Any = frame.astype(str)
    empty: Any = frame.isna() | (text == "")
    blank = [c for c in frame if empty[c].all()]
    same = [c for c in frame if c not in blank and text[c].nunique() == 1]
    unit = str(frame["unit"].iloc[0]) if "unit" in same and "score" in frame else ""
    stated = [c for c in same if not (unit and c == "unit")]
    stated_values = [f"{c} {plainly(frame[c].iloc[0])}" for c in stated]
    varying = frame.drop(columns=[*blank, *same])
    if not len(varying.columns):
        return frame, "", unit
    lines = [f"In every row: {'; '.join(stated_values)}."] if stated_values else []
    lines += [f"Without a value: {', '.join(blank)}."] if blank else []
    lines += ["An empty cell has no value."] if varying.isna().any(axis=None) else []
    return varying, " ".join(lines), unit


def csv_link(content: str, name: str) -> Markup:
    """Return a link that holds a CSV file."""
    data = f"data:text/csv;charset=utf-8,{quote(content, safe=',.-+:')}"
    return element("a", "CSV", class_="data", download=f"{name}.csv", href=data)


def fold(summary: str, *contents: Any, class_: str | None = None) -> Markup:
    """Return contents that a reader unfolds."""
    return element("details", element("summary", summary), *contents, class_=class_)


def stored(made: Any) -> Markup:
    """Return the provenance as JSON that a reader unfolds."""
    whole = json.dumps(made, indent=1, ensure_ascii=False, default=str)
    return fold("How it was made", element("pre", whole), class_="stored")


def pair_list(found: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> Markup:
    """Return names with their values as a list in columns."""
    items = found.items() if isinstance(found, Mapping) else found
    pairs = ((element("dt", name), element("dd", plainly(value))) for name, value in items)
    return element("dl", *(element("div", *pair) for pair in pairs))


def plainly(value: Any) -> str:
    """Return a setting as text: numbers with four digits, lists with commas, "none" if empty."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {plainly(item)}" for key, item in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plainly, value)) or "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value is None or value == "" else str(value)


def _spelled(x: Any) -> Any:
    if isinstance(x, float):
        return "" if x != x else f"{x:.4g}"  # noqa: PLR0124
    return x if hasattr(x, "__html__") else str(x)
