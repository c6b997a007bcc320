"""A plotly figure in a page: its description as inert data, and its numbers as tables."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np

ROWS = 400  # rows of a figure's numbers that a page lists
_DEFAULT_HEIGHT = 450  # plotly's default where a figure sets none


def figure(drawn: Mapping[str, Any]) -> str:
    """Return a placeholder for the figure, which `figures.js` fills, followed by its numbers."""
    told = json.dumps(drawn, ensure_ascii=False).replace("<", "\\u003c")
    layout = drawn.get("layout", {})
    title = _title(layout) or "figure"
    height = int(layout.get("height") or _DEFAULT_HEIGHT)
    return (
        f'<figure class="output"><div class="plot" role="img" aria-label="{escape(title)}" '
        f'style="min-height:{height}px"><noscript>Drawn by a script; its numbers are below.'
        f'</noscript></div><script type="application/json">{told}</script>'
        f"<details><summary>Numbers of this figure</summary>{numbers(drawn)}</details></figure>"
    )


def numbers(drawn: Mapping[str, Any]) -> str:
    """Return the numbers of every trace as tables, with four significant digits."""
    layout, out = drawn.get("layout", {}), []
    for trace in drawn.get("data", ()):
        name = str(trace.get("name") or "")
        names = [_title(layout.get(f"{axis}axis", {})) or axis for axis in "xy"]
        if "z" in trace:
            out.append(_grid(trace, names, name))
        elif "x" in trace or "y" in trace:
            y = _values(trace.get("y", ()))
            x = _values(trace["x"]) if "x" in trace else range(len(y))
            out.append(_table(name, names, zip(x, y, strict=False)))
    return "".join(out) or "<p>This figure has no numbers of its own.</p>"


def _grid(trace: Mapping[str, Any], names: list[str], name: str) -> str:
    z = _array(trace["z"])
    x = _values(trace["x"]) if "x" in trace else range(z.shape[1])
    y = _values(trace["y"]) if "y" in trace else range(z.shape[0])
    rows = ([row, *map(_spelled, line)] for row, line in zip(y, z.tolist(), strict=False))
    return _table(name, [f"{names[1]} \\ {names[0]}", *map(str, x)], rows)


def _table(name: str, columns: list[str], rows: Iterable[Iterable[Any]]) -> str:
    rows = list(rows)
    head = "".join(f'<th scope="col">{escape(str(c))}</th>' for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_spelled(x))}</td>" for x in row) + "</tr>"
        for row in rows[:ROWS]
    )
    more = len(rows) - ROWS
    rest = f"<p>{more:,} more rows are in the figure only.</p>" if more > 0 else ""
    caption = f"<caption>{escape(name)}</caption>" if name else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _title(holder: Mapping[str, Any]) -> str:
    title = holder.get("title", "")
    return str(title.get("text", "") if isinstance(title, Mapping) else title)


def _array(values: Any) -> np.ndarray:
    """Return lists, or decoded typed arrays of plotly: base64 bytes with type and shape."""
    if isinstance(values, Mapping):
        flat = np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"])
        shape = values.get("shape")
        return flat if shape is None else flat.reshape([int(n) for n in str(shape).split(",")])
    return np.array([[np.nan if x is None else x for x in row] for row in values], dtype=float)


def _values(values: Any) -> list[Any]:
    return _array(values).tolist() if isinstance(values, Mapping) else list(values)


def _spelled(x: Any) -> str:
    if x is None or (isinstance(x, float) and x != x):  # noqa: PLR0124
        return ""
    return f"{x:.4g}" if isinstance(x, float) else str(x)
