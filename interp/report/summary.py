"""Summary of a results folder: tables of its scores, and the atlas of everything in it."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

from interp.core.csv_rows import csv_text
from interp.core.errors import DamagedResult, OptionError, PageOmitted
from interp.core.locks import locked
from interp.core.merge import in_metric_order
from interp.core.registry import METRICS
from interp.core.shell_line import shell_line
from interp.core.store import Store
from interp.core.table import HeadTable

MODELS = "models.html"
"""Page of several models, with `roles.csv` beside it."""
FILES = ("table.parquet", "table.csv", "heads.html")
"""Files of the summary; the page comes last."""


SHARE = 20  # pages of a run that is not finished take at most this share of its time


class RunPage:
    """The page of many models while they are scored: what is done, what is left, and until when.

    Args:
        folder: the results folder.
        total: number of models.
    """

    def __init__(self, folder: Path, total: int) -> None:
        self.folder, self.total = folder, total
        self.tables: list[HeadTable] = []
        self.started, self.written, self.cost = time.monotonic(), -math.inf, 0.0

    def add(self, table: HeadTable) -> None:
        """Add the scores of a model, and write the page unless it was written just before."""
        from interp.core.files import write_atomically
        from interp.heads.roles.decide import roles
        from interp.report.models_page import models_page

        self.tables.append(table)
        begin, done = time.monotonic(), len(self.tables)
        if done == self.total or begin - self.written < SHARE * self.cost:
            return
        minutes = (begin - self.started) / done * (self.total - done) / 60
        state = f"{done} of {self.total} models are done; about {minutes:.2g} minutes are left."
        whole = HeadTable.concat(self.tables)
        page = models_page(whole, roles(whole), state=state)
        write_atomically(self.folder / MODELS, page.encode())
        self.written = time.monotonic()
        self.cost = self.written - begin


def write_summary(store: Store, failed: Mapping[str, str] | None = None) -> HeadTable:
    """Write the tables and the atlas of a results folder, and return the table of its scores.

    Where there are several models, `roles.csv` and the page `models.html` have a row per model with
    its heads of each role.

    Models are in the order of their names and metrics in that of `interp list metrics`, so the
    files depend on the stored results only. Damaged results are set aside with a warning. Commands
    that share the folder write one after another; the last one sees the results of all.

    Warns PageOmitted where a page of all results exceeds its budget with the least detail.
    """
    from interp.core.files import write_atomically
    from interp.heads.roles.decide import roles as decided
    from interp.report.atlas.build import build_atlas
    from interp.report.atlas.page import atlas_page
    from interp.report.models_page import models_page

    folder = store.folder
    with locked(folder, ["summary"]):
        store.write_index()
        try:
            table = store.read()
        except DamagedResult:
            store.set_damaged_aside()
            table = store.read()
        table = in_metric_order(table, list(METRICS))
        for name in FILES[:2]:
            table.save(folder / name)
        if several := len(table.models) > 1:
            roles = decided(table)
            csv = csv_text(roles.by_model())
            write_atomically(folder / "roles.csv", csv.encode())
        if len(table):
            command = shell_line("atlas", folder)
            atlas = build_atlas(folder, command=command)
            try:
                page = atlas_page(atlas, beside=FILES[:2])
            except OptionError as error:  # it exceeds its budget: the scores are in the tables
                text = f"{folder}: {FILES[2]} is not written again: {error}"
                warnings.warn(text, PageOmitted, stacklevel=2)
            else:
                write_atomically(folder / FILES[2], page.encode())
            if several:
                there = [name for name in ("roles.csv", *FILES) if (folder / name).is_file()]
                page = models_page(table, roles, command=command, beside=there, failed=failed)
                write_atomically(folder / MODELS, page.encode())
    return table
