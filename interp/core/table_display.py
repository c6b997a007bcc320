"""A table of head scores as text and as HTML: the first heads of each metric."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Protocol

from interp.core.columns import with_error

if TYPE_CHECKING:
    import pandas as pd


class TableDisplay(Protocol):
    """Table of head scores as it is displayed; see `interp.core.table.HeadTable`."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metric labels."""
        ...

    @property
    def models(self) -> tuple[str, ...]:
        """Model names."""
        ...

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of attention stacks."""
        ...

    def where(self, *, metric: str) -> TableDisplay:
        """Rows of one metric."""
        ...

    def top(self, k: int) -> TableDisplay:
        """First rows of each metric."""
        ...

    def to_pandas(self) -> pd.DataFrame:
        """Rows as a DataFrame."""
        ...

    def __len__(self) -> int: ...


FIRST = 3  # heads of each metric, unless `top` was called with a number


def table_text(table: TableDisplay, asked: int | None) -> str:
    """Format the heads that `top` selected, or the first of each metric of a whole table."""
    lines = [table_size(table, asked)]
    for metric, unit, rows in _blocks(table, asked):
        lines.append(f"{metric} ({unit})" if unit else metric)
        width = max(len(row[0]) for row in rows)
        lines += [f"  {at:<{width}}  {score}  null {null}  n {n}" for at, score, null, n in rows]
    return "\n".join(lines)


def as_html(table: TableDisplay, asked: int | None) -> str:
    """Format a table as HTML for a notebook, with every name escaped."""
    names = ("metric", "head", "score", "null", "n")
    lines = [f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>"]
    for metric, unit, rows in _blocks(table, asked):
        for at, score, null, n in rows:
            cells = (metric, at, f"{score} {unit}", null, n)
            lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    return f"<table><caption>{escape(table_size(table, asked))}</caption>{''.join(lines)}</table>"


def table_size(table: TableDisplay, asked: int | None) -> str:
    """Describe the size of the table, and the number of rows shown where not all are."""
    counts = {"row": len(table), "model": len(table.models), "metric": len(table.metrics)}
    text = ", ".join(f"{n:,} {what}{'s' * (n != 1)}" for what, n in counts.items())
    shown = sum(len(rows) for _, _, rows in _blocks(table, asked))
    if shown < len(table):
        each = " of each metric" if len(table.metrics) > 1 else ""
        text += f"; the first {FIRST}{each} are shown, top(k) shows k" if shown else ""
    return f"HeadTable: {text}"


def _blocks(
    table: TableDisplay, asked: int | None
) -> Iterator[tuple[str, str, list[tuple[str, str, str, str]]]]:
    """Yield per metric its name, its unit, and position, score, null and n of each head."""
    several = len(table.models) > 1, len(table.stacks) > 1
    mixed = not {"softmax", "unknown"} >= set(table.to_pandas()["kind"])
    for metric in table.metrics:
        of = table.where(metric=metric)
        best = of.top(FIRST) if asked is None else of  # a table that was cut is already in order
        rows = best.to_pandas().to_dict("records")
        shown = [
            (
                " ".join(
                    [row["model"]] * several[0]
                    + [row["stack"]] * several[1]
                    + [f"L{row['layer']}H{row['head']}"]
                    + [f"({row['kind']})"] * mixed
                ),
                with_error(row["score"], row["sem"]),
                with_error(row["null"], row["null_sem"]),
                str(row["n"]),
            )
            for row in rows
        ]
        if shown:
            yield metric, rows[0]["unit"], shown
