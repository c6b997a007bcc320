"""The one shell of every page: its style, its security policy, its escaping, and its tables."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from interp.draw.svg import element

if TYPE_CHECKING:
    import jinja2
    import pandas as pd
    import plotly.graph_objects as go

ROWS = 1_000  # of a table on a page
CSV = 400_000  # bytes of a table as data in a page


def render(template: str, title: str, *, scripts: Sequence[str] = (), **context: Any) -> str:
    """Fill a template that extends `page.jinja2`; all texts are escaped by the template.

    Args:
        template: its name in the folder `templates`, without the ending.
        scripts: names of files in that folder, in order; a page without them has no script.
        context: what the template prints. `command`, `beside` (files in the same folder) and
            `made` (provenance) are printed by the shell itself.
    """
    context = {"command": None, "beside": (), "made": None} | context
    script = Markup("".join(asset(f"{name}.js") for name in (scripts and ("make", *scripts))))
    style = Markup(_style())
    return (
        _templates()
        .get_template(f"{template}.jinja2")
        .render(context, title=title, style=style, script=script)
    )


def page(
    title: str,
    figure: go.Figure | Markup | None,
    parts: Iterable[Sequence[Any]],
    made: Mapping[str, Any],
    *,
    file_name: str = "",
) -> bytes:
    """The page of one result as UTF-8.

    Args:
        figure: a plotly figure, drawn without its script, or an element; None where there is none.
        parts: sections, each a heading followed by its contents: texts become paragraphs, data
            frames tables, and elements stay as they are.
        made: provenance, shown as JSON.
        file_name: of the page, which names its data.
    """
    if figure is not None and not isinstance(figure, Markup):
        from interp.draw.figure import svg

        figure = svg(figure)
    sections = [(head, [_shown(x) for x in contents]) for head, *contents in parts]
    sliding = figure is not None and "data-rank" in figure
    return render(
        "result", title, figure=figure, parts=sections, made=made, name=file_name,
        scripts=["slider"] if sliding else [],
    ).encode()  # fmt: skip


def _shown(content: Any) -> Markup:
    if hasattr(content, "__html__"):
        return Markup(content.__html__())
    return element("p", content) if isinstance(content, str) else html_table(content)


@cache
def _templates() -> jinja2.Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("interp.draw"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters |= {"digest": policy_hash, "as_json": _as_json, "pairs": pair_list}
    return found


@cache
def asset(name: str) -> str:
    """The text of a style sheet or script."""
    return files("interp.draw").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    """The style sheet with the colours of both themes; print is always on white."""
    from interp.draw.colours import rules

    dark = f"@media screen and (prefers-color-scheme:dark){{{rules('dark')}}}"
    return f"{asset('style.css')}\n{rules('light')}\n{dark}\n"


def policy_hash(text: str) -> str:
    """The hash by which a policy names a script or a style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str)


def text(x: object) -> str:
    """Plain text where plotly would read markup."""
    return str(x).replace("&", "&amp;").replace("<", "&lt;")


@dataclass(frozen=True)
class Table:
    """Rows for people, as HTML.

    Args:
        columns: names; one that begins with a dot is of words, which are set left, and a pair is a
            name and the class of its cells.
        rows: cells, of which elements `<td>` and `<th>` stay as they are; a row can be an element.
        kind: classes of the table.
        headed: the first cell of a row names the row.
    """

    columns: Sequence[str | tuple[str, str]]
    rows: Iterable[Sequence[Any]]
    caption: str = ""
    unit: Any = ""
    kind: str | None = None
    headed: bool = True

    def __html__(self) -> Markup:
        named = [c if isinstance(c, tuple) else (c[1:], "words") if c[:1] == "." else (c, None)
                 for c in self.columns]  # fmt: skip
        kinds = [kind or None for _, kind in named]
        head = [element("th", name, scope="col", class_=kind or None) for name, kind in named]
        body = (row if isinstance(row, Markup) else self._row(row, kinds) for row in self.rows)
        caption = ()
        if self.caption or self.unit:
            unit = element("span", self.unit, class_="unit") if self.unit else ""
            caption = (element("caption", self.caption, " ", unit),)
        table = element(
            "table", *caption, element("thead", element("tr", *head)), element("tbody", *body),
            class_=self.kind,
        )  # fmt: skip
        return element("div", table, class_="scroll", tabindex=0)

    def _row(self, row: Sequence[Any], kinds: Sequence[str | None]) -> Markup:
        cells = []
        for at, (cell, kind) in enumerate(zip(row, kinds, strict=False)):
            if isinstance(cell, Markup) and cell.startswith(("<td", "<th")):
                cells.append(cell)
            elif at == 0 and self.headed:
                cells.append(element("th", _spelled(cell), scope="row", class_=kind))
            else:
                cells.append(element("td", _spelled(cell), class_=kind))
        return element("tr", *cells)


def html_table(frame: pd.DataFrame) -> Markup:
    """A data frame as a table: numbers with four digits, texts set left."""
    first = frame.iloc[0] if len(frame) else frame.columns
    words = [isinstance(x, str) for x in first]
    columns = [(str(c), "text" if w else "") for c, w in zip(frame, words, strict=True)]
    rows = frame.itertuples(index=False, name=None)
    return Markup(Table(columns, rows, headed=False).__html__())


def data_table(frame: pd.DataFrame, name: str) -> Markup:
    """A table with its rows as CSV; what a page has no room for is said.

    Args:
        name: of the file that the link saves, without its ending.
    """
    content = frame.to_csv(index=False)
    if len(content.encode()) > CSV:
        link = element("p", f"The rows as CSV are more than {CSV / 1e6:g} MB, and left out here.")
    else:
        link = element("p", csv_link(content, name))
    more = len(frame) - ROWS
    rest = element("p", f"{more:,} more rows are not on this page.") if more > 0 else Markup("")
    return link + html_table(frame.head(ROWS)) + rest


def csv_link(content: str, name: str) -> Markup:
    """A link that holds a file of CSV."""
    data = f"data:text/csv;charset=utf-8,{quote(content, safe=',.-+:')}"
    return element("a", "CSV", class_="data", download=f"{name}.csv", href=data)


def fold(summary: str, *contents: Any, class_: str | None = None) -> Markup:
    """Contents that a reader unfolds."""
    return element("details", element("summary", summary), *contents, class_=class_)


def pair_list(found: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> Markup:
    """Names with their values, as a list in columns."""
    items = found.items() if isinstance(found, Mapping) else found
    return element(
        "dl", *(element("div", element("dt", k), element("dd", plainly(v))) for k, v in items)
    )


def plainly(value: Any) -> str:
    """A setting for people: four digits, lists with commas, and a word where there is none."""
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


def plain(x: Any) -> Any:
    """JSON-able: arrays as lists, NaN as null."""
    if isinstance(x, Mapping):
        return {str(k): plain(v) for k, v in x.items()}
    if hasattr(x, "tolist"):
        return plain(x.tolist())
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return None if isinstance(x, float) and x != x else x  # noqa: PLR0124


def json_document(x: Any) -> bytes:
    """One JSON document that any reader takes."""
    return (json.dumps(plain(x), allow_nan=False, ensure_ascii=False) + "\n").encode()
