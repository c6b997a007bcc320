"""The page of causal checks: per score what its top heads do, beside random sets of the same shape.

Each row draws the task's value on one line: with every head, without the top ones, and the band
of the random sets. It is plain HTML and SVG; nothing in it needs a script.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from interp.core.columns import number, prompt_counts

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 180
_READING = (
    "The bar is the range of the task's value without random sets of as many heads in the same "
    "layers, its tick their median; the upright line is the value with every head, the dot that "
    "without the top heads. The ratio is the dot over the tick, with its bootstrap interval over "
    "prompts and sets. p is the share of sets, the top one included, that do as much damage; "
    "beside it stands the least that so many sets allow, and the same for sets of any layers. "
    "Checks are many: a p below 0.05 in one of twenty rows is what chance gives."
)
_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:100rem;"
    "margin:2rem auto;padding:0 1rem;color:#1b1f23;background:#fff}"
    "@media screen and (prefers-color-scheme:dark){body{color:#e4e8ec;background:#14181c}}"
    "h1,h2,code,pre{overflow-wrap:anywhere}body>p{max-width:75ch}"
    "table{border-collapse:collapse;font-size:14px}"
    "td,th{padding:3px 7px;text-align:right;border-bottom:1px solid #8886;white-space:nowrap}"
    "td.text,th.text{text-align:left}.scroll{overflow-x:auto}pre{white-space:pre-wrap;"
    "font-size:12px}svg .band{fill:#8888}svg .tick{stroke:#888;stroke-width:2}"
    "svg .clean{stroke:currentColor;stroke-width:1.5}svg .out{fill:#D55E00}"
    "td.doubt{white-space:normal;font-style:italic}"
    # what scrolls on a screen is cut off on paper
    "@media print{.scroll{overflow:visible}table{font-size:7pt}tr{break-inside:avoid}"
    "td,th{white-space:normal;padding:1px 2px}svg{width:70px;height:9px}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}"
)
# Names are text of strangers: nothing is fetched and nothing runs, whatever they say.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_COLUMNS = ("score", "heads", "task", "", "all heads", "without top", "without random", "ratio",
            "95 %", "p", "least p", "sets", "any layers", "p, any", "least p, any", "sets, any",
            "prompts")  # fmt: skip


def page(frame: pd.DataFrame, provenance: Sequence[Mapping[str, Any]], command: str) -> str:
    """One self-contained page, all names escaped."""
    out = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>interp verify</title><style>{_STYLE}</style></head><body>",
        f"<h1>Do the heads that score high matter?</h1><p>{_READING}</p>",
        f"<p>Command: <code>{escape(command)}</code></p>",
    ]
    for model, rows in frame.groupby("model", sort=False):
        out.append(f"<section><h2>{escape(str(model))}</h2>{_table(rows)}</section>")
    made = escape(json.dumps(list(provenance), indent=1, ensure_ascii=False))
    out.append(f"<details><summary>How it was made</summary><pre>{made}</pre></details>")
    return "\n".join([*out, "</body></html>\n"])


def _table(rows: pd.DataFrame) -> str:
    head = "".join(
        f'<th scope="col"{" class=text" if at < 4 else ""}>{escape(name)}</th>'
        for at, name in enumerate(_COLUMNS)
    )
    lines = []
    for row in rows.to_dict("records"):
        words = (row["metric"], row["heads"], f"{row['task']} ({row['purpose']}), {row['unit']}")
        numbers = (
            number(row["clean"]), number(row["out"]), number(row["random"]), _ratio(row),
            _interval(row), _p(row["p"]), _p(row["least_p"]) if row["n_random"] else "none",
            f"{row['n_random']} of {row['n_possible']}", number(row["any_random"]),
            _p(row["any_p"]), _p(row["any_least_p"]), f"{row['n_any']} of {row['n_any_possible']}",
            prompt_counts(row["n_prompts"], row["n_clusters"]),
        )  # fmt: skip
        lines.append(
            "<tr>"
            + "".join(f'<td class="text">{escape(str(w))}</td>' for w in words)
            + f"<td>{_picture(row)}</td>"
            + "".join(f"<td>{escape(n)}</td>" for n in numbers)
            + "</tr>"
        )
        if row["doubts"]:
            lines.append(
                f'<tr><td class="text doubt" colspan="{len(_COLUMNS)}">'
                f"{escape(str(row['doubts']))}</td></tr>"
            )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _p(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.2g}"


def _ratio(row: Mapping[str, Any]) -> str:
    if not row["n_random"]:
        return "none"
    if math.isnan(row["ratio"]):
        return f"{row['difference']:+.3g} (difference)"
    return f"{row['ratio']:.3g}"


def _interval(row: Mapping[str, Any]) -> str:
    name = "difference" if math.isnan(row["ratio"]) else "ratio"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if not row["n_random"]:
        return "none"
    return "one prompt" if math.isnan(low) else f"{low:.3g} to {high:.3g}"


def _picture(row: Mapping[str, Any]) -> str:
    which = "random" if row["n_random"] else "any"  # no other set of the same layers
    band_low, band_high, tick = row[f"{which}_low"], row[f"{which}_high"], row["random"]
    tick = tick if row["n_random"] else row["any_random"]
    values = [row["clean"], row["out"], tick, band_low, band_high]
    low, high = min(values), max(values)
    spread = high - low or 1.0

    def x(value: float) -> float:
        return round(6 + (_WIDTH - 12) * (value - low) / spread, 1)

    left, right = x(band_low), x(band_high)
    return (
        f'<svg width="{_WIDTH}" height="18" viewBox="0 0 {_WIDTH} 18" aria-hidden="true">'
        f'<rect class="band" x="{left:g}" y="5" width="{max(right - left, 1):g}" height="8"/>'
        f'<path class="tick" d="M{x(tick):g} 3v12"/>'
        f'<path class="clean" d="M{x(row["clean"]):g} 0v18"/>'
        f'<circle class="out" cx="{x(row["out"]):g}" cy="9" r="4"/></svg>'
    )
