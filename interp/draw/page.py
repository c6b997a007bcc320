"""One self-contained page: a figure that works offline, its numbers, and how they were made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Okabe and Ito 2008, "Color Universal Design": told apart by every common kind of colour
# blindness. Dashes and markers differ too, so that a grey print can be read.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
GREY, BAND = "#6b6b6b", "rgba(107,107,107,0.20)"

_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;"
    "margin:2rem auto;padding:0 1rem;color:#1d1d1d;background:#fff}"
    "@media screen and (prefers-color-scheme:dark){body{color:#e4e8ec;background:#14181c}"
    # drawn for white paper
    "#figure,section svg{background:#fff;border-radius:.3rem}}"
    "section>svg,section :not(.scroll)>svg{max-width:100%;height:auto}"
    "h1{font-size:1.4rem}h2{font-size:1.1rem}"
    "table{border-collapse:collapse;font-size:13px}td,th{padding:2px 10px;text-align:right;"
    "border-bottom:1px solid #8884;white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}"
    "td.text,th.text{text-align:left}td.text{white-space:normal;min-width:9em}.scroll{overflow-x:auto}"
    "h1,h2,p,pre{overflow-wrap:anywhere}pre{white-space:pre-wrap;font-size:12px}"
    "a{color:#0b5cad}#figure{max-width:100%}:focus-visible{outline:2px solid #0b5cad}"
    "@media screen and (prefers-color-scheme:dark){a{color:#7cc0ff}"
    ":focus-visible{outline-color:#7cc0ff}}"
    # what scrolls on a screen is cut off on paper
    "@media print{.modebar,a.data{display:none}.scroll{overflow:visible}tr{break-inside:avoid}"
    "table{font-size:8pt;max-width:100%}td,th{white-space:normal;padding:1px 4px}"
    "h2{break-after:avoid}}"
)
ROWS = 5_000  # of a table on a page
CSV = 2_000_000  # bytes of a table as data in a page
# The figure brings its own script; nothing can be fetched, whatever a name or a token says.
_POLICY = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)


def text(x: object) -> str:
    """Plain text where plotly would read markup."""
    return str(x).replace("&", "&amp;").replace("<", "&lt;")


def faded(colour: str, share: float) -> str:
    """A colour `#rrggbb` with this opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"


def html_table(frame: pd.DataFrame) -> str:
    """A table for people: numbers with four digits, texts escaped."""
    left = [len(frame) > 0 and isinstance(frame[c].iloc[0], str) for c in frame.columns]
    head = "".join(
        f'<th scope="col"{" class=text" if words else ""}>{escape(str(c))}</th>'
        for c, words in zip(frame.columns, left, strict=True)
    )
    rows = "".join(
        "<tr>" + "".join(_cell(x) for x in row) + "</tr>"
        for row in frame.itertuples(index=False, name=None)
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def data_table(frame: pd.DataFrame, name: str) -> str:
    """A table for people with the same rows as CSV; what a page has no room for is said.

    Args:
        name: of the file that the link saves, without its ending.
    """
    text = frame.to_csv(index=False)
    more = len(frame) - ROWS
    rest = f"<p>{more:,} more rows are not on this page.</p>" if more > 0 else ""
    if len(text.encode()) > CSV:
        link = f"<p>The rows as CSV are more than {CSV / 1e6:g} MB, and left out here.</p>"
    else:
        data = f"data:text/csv;charset=utf-8,{quote(text, safe=',.-+:')}"
        link = f'<p><a class="data" download="{escape(name)}.csv" href="{data}">CSV</a></p>'
    return f"{link}{html_table(frame.head(ROWS))}{rest}"


def _cell(x: Any) -> str:
    if isinstance(x, str):
        return f'<td class="text">{escape(x)}</td>'
    spelled = f"{x:.4g}" if isinstance(x, float) else str(x)
    return f"<td>{escape('' if spelled == 'nan' else spelled)}</td>"


def page(
    title: str,
    figure: go.Figure | None,
    parts: Sequence[tuple[str, str]],
    made: Mapping[str, Any],
    *,
    file_name: str,
) -> bytes:
    """The page as UTF-8.

    Args:
        figure: left out where a result has none.
        parts: further headings, each with its HTML.
        made: provenance, shown as JSON.
        file_name: of the picture that the figure's camera button saves, an SVG.
    """
    shown = "" if figure is None else _shown(figure, file_name)
    sections = "".join(f"<section><h2>{escape(head)}</h2>{body}</section>" for head, body in parts)
    told = escape(json.dumps(made, indent=1, ensure_ascii=False))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>{shown}{sections}"
        f"<details><summary>How it was made</summary><pre>{told}</pre></details></body></html>\n"
    ).encode()


def _shown(figure: go.Figure, file_name: str) -> str:
    note = "<noscript>The figure is drawn by a script; its numbers stand below.</noscript>"
    return note + figure.to_html(
        full_html=False,
        include_plotlyjs=True,  # inside the file: it must open without a network
        div_id="figure",
        config={
            "displaylogo": False,
            "responsive": True,
            "toImageButtonOptions": {"format": "svg", "filename": file_name},
        },
    )


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
