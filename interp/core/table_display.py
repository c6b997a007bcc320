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


FIRST = 3  # heads of each metric, where nobody asked for a number of them


def table_text(table: TableDisplay, asked: int | None) -> str:
    """The heads that `top` was asked for, in its order; of a whole table the first of each metric.

    Args:
        asked: how many heads of each metric; None for a table that nobody cut.
    """
    lines = [table_size(table, asked)]
    for metric, unit, rows in _blocks(table, asked):
        lines.append(f"{metric} ({unit})" if unit else metric)
        width = max(len(row[0]) for row in rows)
        lines += [f"  {at:<{width}}  {score}  null {null}  n {n}" for at, score, null, n in rows]
    return "\n".join(lines)


def as_html(table: TableDisplay, asked: int | None) -> str:
    """The same as a table for a notebook, every name escaped."""
    names = ("metric", "head", "score", "null", "n")
    lines = [f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>"]
    for metric, unit, rows in _blocks(table, asked):
        for at, score, null, n in rows:
            cells = (metric, at, f"{score} {unit}", null, n)
            lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    return f"<table><caption>{escape(table_size(table, asked))}</caption>{''.join(lines)}</table>"


def table_size(table: TableDisplay, asked: int | None) -> str:
    """Size of the table, and how many of its rows are shown where not all are."""
    counts = {"row": len(table), "model": len(table.models), "metric": len(table.metrics)}
    told = ", ".join(f"{n:,} {what}{'s' * (n != 1)}" for what, n in counts.items())
    shown = sum(len(rows) for _, _, rows in _blocks(table, asked))
    if shown < len(table):
        each = " of each metric" if len(table.metrics) > 1 else ""
        told += f"; the first {FIRST}{each} are shown, top(k) shows k" if shown else ""
    return f"HeadTable: {told}"


def _blocks(
    table: TableDisplay, asked: int | None
) -> Iterator[tuple[str, str, list[tuple[str, str, str, str]]]]:
    """Per metric its name, its unit, and of each head: where, score, null, n."""
    several = len(table.models) > 1, len(table.stacks) > 1
    for metric in table.metrics:
        of = table.where(metric=metric)
        best = of.top(FIRST) if asked is None else of  # what was cut has the order it was cut by
        rows = best.to_pandas().to_dict("records")
        shown = [
            (
                " ".join(
                    [row["model"]] * several[0]
                    + [row["stack"]] * several[1]
                    + [f"L{row['layer']}H{row['head']}"]
                ),
                with_error(row["score"], row["sem"]),
                with_error(row["null"], row["null_sem"]),
                str(row["n"]),
            )
            for row in rows
        ]
        if shown:
            yield metric, rows[0]["unit"], shown
