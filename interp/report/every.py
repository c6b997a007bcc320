"""Every number of a page: as a table that needs no script, and as data to take away."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from interp.core.columns import with_error

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ("stack", "layer", "head", "kv_head", "score", "sem", "n", "null", "null_sem")


def every_number(rows: pd.DataFrame) -> str:
    """Heads down, metrics across, of one model; folded until it is asked for."""
    metrics = [str(m) for m in rows["metric"].unique()]
    several = len(set(rows["stack"])) > 1
    heads: dict[tuple[str, int, int], dict[str, str]] = {}
    records: list[dict[str, Any]] = rows.to_dict("records")  # type: ignore[assignment]
    for row in records:
        key = (str(row["stack"]), int(row["layer"]), int(row["head"]))
        heads.setdefault(key, {})[str(row["metric"])] = (
            with_error(row["score"], row["sem"]) if row["n"] else ""
        )
    columns = "".join(f'<th scope="col">{escape(m)}</th>' for m in metrics)
    lines = []
    for (stack, layer, head), cells in heads.items():
        name = f"L{layer}H{head}" + (f" {escape(stack)}" if several else "")
        values = "".join(f"<td>{cells.get(m, '')}</td>" for m in metrics)
        lines.append(f'<tr><th scope="row">{name}</th>{values}</tr>')
    return (
        f"<details><summary>Every number as a table ({len(heads):,} heads)</summary>"
        '<div class="scroll" tabindex="0"><table class="sortable"><thead><tr>'
        f'<th scope="col">head</th>{columns}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
        "</div></details>"
    )


def download(rows: pd.DataFrame, name: str) -> str:
    """A link that holds the rows of one map as CSV, nine digits each."""
    lines = [",".join(_COLUMNS)]
    lines += [",".join(_cell(row[c]) for c in _COLUMNS) for row in rows.to_dict("records")]
    data = quote("\n".join(lines) + "\n", safe=",.-+:")
    file = quote("".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:60])
    return (
        f'<a class="data" download="{file}.csv" href="data:text/csv;charset=utf-8,{data}">CSV</a>'
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.9g}"  # noqa: PLR0124
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n\r') else text
