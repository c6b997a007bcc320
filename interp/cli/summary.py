"""Summary of a results folder: tables and a page of everything in its store."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from interp.core.errors import DamagedResult
from interp.core.locks import locked
from interp.core.merge import ordered
from interp.core.registry import METRICS
from interp.core.store import Store
from interp.core.table import HeadTable

FILES = ("table.parquet", "table.csv", "heads.html")
"""Files of the summary; the page comes last."""

MetricRanges = Mapping[str, tuple[float | None, float | None]]


def write_summary(
    store: Store, *, ranges: MetricRanges | None = None, by: str = "end"
) -> HeadTable:
    """Write the tables and the page of all results of a store, and return the table.

    Models are in the order of their names and metrics in that of `interp metrics`, so the files
    depend on the stored results only. Damaged results are set aside with a warning. Commands that
    share the folder write one after another; the last one sees the results of all.

    Args:
        store: the results.
        ranges: lower and upper end of further metrics, for the colours of the page.
        by: order of the heads on the page; see `HeadTable.top`.

    Raises:
        StoreError: a file cannot be written.
    """
    from interp.report import write_report

    folder = store.folder
    with locked(folder, ["summary"]):
        store.write_index()
        try:
            table = store.read()
        except DamagedResult:
            store.set_damaged_aside()
            table = store.read()
        table = ordered(table, list(METRICS))
        for name in FILES[:2]:
            table.save(folder / name)
        if len(table):
            write_report(
                table,
                folder / FILES[2],
                ranges=METRICS.ranges() | dict(ranges or {}),
                command=shlex.join(["interp", "report", str(folder)]),
                beside=list(FILES[:2]),
                by=by,
            )
    return table
