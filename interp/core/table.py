"""HeadTable: scores of heads, one row per head and metric, with provenance."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core import table_files
from interp.core.columns import (
    COLUMNS,
    Provenance,
    checked_frame,
    checked_provenance,
    joined,
    only,
    records_of_scores,
    row_pairs,
    rows_of_records,
)
from interp.core.errors import OptionError, UnknownName
from interp.core.files import require_page
from interp.core.long_rows import t_bounds
from interp.core.order import first_of_each
from interp.core.presenter import drawn
from interp.core.prompt_values import WithPromptValues
from interp.core.result import Result

# pandas, numpy and plotly are imported where they are used, so that listing stays fast
if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import plotly.graph_objects as go


class HeadTable(WithPromptValues, Result):
    """Immutable table of head scores, one row per (model, stack, layer, head, metric).

    `sem` is the standard error of `score` over the `clusters` of its `n` prompts, in the score's
    unit; NaN for one cluster, or when the score is exact because it was computed from weights.
    `low` and `high` bound its 95 % interval, which `interp score` chooses by the kind of values
    (`interp.core.intervals.mean_intervals`), or `why_no_interval` says why there is none; where
    neither is stated it is the t interval.
    `null` is the score under the null hypothesis (see provenance), `null_sem` the standard error of
    that mean and `null_sd` the standard deviation of a single head under the null; `p` is the
    probability of a score at least as far from it. A score is NaN exactly where n is 0: then there
    is no mean.

    Raises OptionError for missing or wrong columns, a repeated row, or rows without provenance.
    """

    _frame: pd.DataFrame
    _provenance: Provenance
    _prompt_values: Mapping[tuple[str, str], Any]
    _units = ("stack", "layer", "head")
    _by = "end"

    def __init__(self, frame: pd.DataFrame, provenance: Mapping[tuple[str, str], Mapping]) -> None:
        object.__setattr__(self, "_frame", checked_frame(frame))
        object.__setattr__(self, "_provenance", checked_provenance(self._frame, provenance))
        object.__setattr__(self, "_prompt_values", {})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a HeadTable is frozen; to_pandas() gives a copy to change")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a HeadTable is frozen; to_pandas() gives a copy to change")

    @classmethod
    def from_records(
        cls, records: Iterable[Mapping[str, Any]], provenance: Mapping[tuple[str, str], Mapping]
    ) -> HeadTable:
        """Build a table from one mapping per row, or per site with a [head] array as `score`.

        model, layer, metric and score are required; a site has no `head`. `kv_head` defaults to the
        head, or follows from `n_kv_heads` (head h reads kv head h // (n_heads // n_kv_heads), as in
        repeat_kv). Numbers given per site apply to all its heads; None counts as absent. Raises
        OptionError for unknown fields.
        """
        return cls(rows_of_records(records), provenance)

    @classmethod
    def from_scores(
        cls,
        *,
        model: str,
        metric: str,
        score: Any,
        provenance: Mapping[str, Any],
        stack: str = "decoder",
        n_kv_heads: int | None = None,
        **columns: Any,
    ) -> HeadTable:
        """Build one metric of one stack from a [layer, head] array, or one [head] array per layer.

        `sem`, `n`, `null`, `null_sem`: one number for all, or an array of the shape of `score`.
        `unit`: a text. `provenance` is that of this (model, metric). Raises OptionError for shapes
        that differ.

        Args:
            model: name of the model.
            metric: label of the metric.
            score: the scores.
            provenance: record of how the scores were made.
            stack: name of the attention stack.
            n_kv_heads: number of key-value heads, for `kv_head`.
            **columns: further columns, as above.
        """
        records = records_of_scores(
            score, model=model, metric=metric, stack=stack, n_kv_heads=n_kv_heads, columns=columns
        )
        return cls.from_records(records, {(model, metric): provenance} if records else {})

    @classmethod
    def concat(cls, tables: Iterable[HeadTable]) -> HeadTable:
        """Concatenate all rows of all tables, in order; raises OptionError for repeated rows."""
        tables = list(tables)
        joined_table = cls(*joined([(table._frame, table._provenance) for table in tables]))
        return joined_table.with_prompt_values(
            {key: values for table in tables for key, values in table._prompt_values.items()}
        )

    def with_prompt_values(self, values: Mapping[tuple[str, str], Any]) -> HeadTable:
        """Return this table with the values per prompt of some metrics, keyed by (model, metric).

        A store keeps them beside the table (`interp.core.prompt_values`); `save` does not write
        them. Equality of tables does not depend on them.
        """
        table = copy.copy(self)
        object.__setattr__(table, "_prompt_values", dict(values))
        return table

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metric labels, in order of appearance."""
        return tuple(self._frame["metric"].unique())

    @property
    def models(self) -> tuple[str, ...]:
        """Model names, in order of appearance."""
        return tuple(self._frame["model"].unique())

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of stacks of attention calls, in order of appearance."""
        return tuple(self._frame["stack"].unique())

    @property
    def provenance(self) -> Provenance:
        """Copy of the record of how each (model, metric) was made."""
        return copy.deepcopy(self._provenance)

    def where(
        self,
        *,
        metric: str | Collection[str] | None = None,
        model: str | Collection[str] | None = None,
        stack: str | Collection[str] | None = None,
        layer: int | Collection[int] | None = None,
        head: int | Collection[int] | None = None,
    ) -> HeadTable:
        """Select the rows with these values (one, or several); raises UnknownName for others.

        Args:
            metric: label or labels of metrics.
            model: name or names of models.
            stack: name or names of attention stacks.
            layer: layer or layers.
            head: head or heads within a layer.
        """
        keep = self._frame["layer"] >= 0
        asked = {"metric": metric, "model": model, "stack": stack, "layer": layer, "head": head}
        for name, wanted in asked.items():
            if wanted is None:
                continue
            values = (
                [wanted]
                if isinstance(wanted, str) or not isinstance(wanted, Collection)
                else wanted
            )
            known = set(self._frame[name].unique())
            for value in values:
                if value not in known:
                    raise UnknownName(name, str(value), map(str, known))
            keep &= self._frame[name].isin(list(values))
        return self._part(self._frame.loc[keep])

    def top(
        self,
        k: int = 5,
        metric: str | None = None,
        *,
        by: str | None = None,
    ) -> HeadTable:
        """Return the first k heads of one metric, or of each: units differ between metrics.

        Ties keep the table's order; heads without a score (n = 0) are excluded.

        Args:
            k: the number of heads.
            metric: the metric; by default each.
            by: "end" (the default), the end of the scale that the metric declares: highest first,
                lowest first, or half of the k from each end of a signed metric (if the table does
                not state it, of one with scores of both signs); "score" for the highest, "lowest",
                "abs" for the largest magnitude, "null" for the largest distance from the null (from
                0 without one).

        Raises:
            OptionError: k is negative.
            UnknownName: there is no such metric or order.
        """
        frame = (self if metric is None else self.where(metric=metric))._frame
        ends = {metric: about.get("end") for (_, metric), about in self._provenance.items()}
        return self._part(first_of_each(frame, k, by or self._by, ends), asked=k)

    def matrix(
        self,
        metric: str,
        *,
        model: str | None = None,
        stack: str | None = None,
        column: str = "score",
    ) -> np.ndarray:
        """Return one column as [layer, head] float64, NaN where the table has no row.

        All metrics of one model and stack have one shape. Raises OptionError where the table has
        several models or stacks and none is named.

        Args:
            metric: label of the metric.
            model: name of the model, where there are several.
            stack: name of the stack, where there are several.
            column: any numeric column.
        """
        import numpy as np

        model = only("model", model, self.where(metric=metric).models)
        stack = only("stack", stack, self.where(metric=metric, model=model).stacks)
        if COLUMNS.get(column, str) is str:
            raise UnknownName(
                "number column", column, [c for c in COLUMNS if COLUMNS[c] is not str]
            )
        site: Any = self._frame[(self._frame["model"] == model) & (self._frame["stack"] == stack)]
        grid = np.full(site[["layer", "head"]].to_numpy().max(axis=0) + 1, np.nan)
        rows = site[site["metric"] == metric]
        grid[rows["layer"], rows["head"]] = rows[column]
        return grid

    def plot(self, metric: str | None = None, **options: Any) -> go.Figure:
        """Draw a plotly heat map, layers x heads, one panel per (model, stack).

        Args:
            metric: the metric to draw; by default the first of the table, since units differ.
            **options: options of `interp.draw.charts.heatmap`.

        Raises:
            OptionError: the table has no rows.
            UnknownName: the table has no such metric.
        """
        if metric is None and not len(self):
            raise OptionError("the table has no rows, so there is nothing to plot")
        return drawn("plot", self, metric or self.metrics[0], **options)

    def save_html(self, path: str | os.PathLike, *, title: str = "Attention heads") -> None:
        """Write the page of `interp atlas`, whole or not at all; raises StoreError, OptionError.

        Colour scales span the scores; `interp.report.write_report` accepts the ranges of metrics.
        """
        require_page(Path(path))
        drawn("report", self, path, title=title)

    def to_pandas(self) -> pd.DataFrame:
        """Return a copy of the rows, with the columns of `interp.core.columns.COLUMNS`."""
        return self._frame.copy()

    wide = to_pandas  # files hold all columns

    def bounds(self, level: float = 0.95) -> np.ndarray:
        """Return low and high end of each score's interval over clusters of prompts.

        At 95 % they are the columns of the table. At another level an interval is computed in the
        same way: from the values per prompt where it was chosen by them, and otherwise as the t
        interval of `sem`. For sampling methods `sem` includes the Monte Carlo error, but the number
        of samples is unknown here; `Importance.interval` uses both.

        Raises:
            OptionError: the level does not lie between 0 and 1, or it is not 0.95 and the values
                per prompt that chose an interval are not there.
        """
        import numpy as np

        stored, ends = self._frame[["low", "high"]].to_numpy(float), t_bounds(self._frame, level)
        if level == 0.95:
            return stored
        plain = np.isclose(stored, t_bounds(self._frame, 0.95), rtol=1e-12, atol=0, equal_nan=True)
        chosen = ~plain.all(1) | (self._frame["why_no_interval"] != "").to_numpy()
        groups: Any = self._frame[chosen].groupby(["model", "metric"], sort=False)
        for key, rows in groups:
            ends[rows.index] = self._chosen_bounds(key, rows, level)
        return ends

    def to_csv(self, path: str | os.PathLike | None = None) -> str:
        """Write plain CSV, with provenance in a file beside it, and return its text.

        The file beside `table.csv` is `table.csv.provenance.json`; raises StoreError.
        """
        return table_files.table_as_text(self, ".csv", path)

    def to_json(self, path: str | os.PathLike | None = None) -> str:
        """Write JSON (NaN as null) and return its text; raises StoreError."""
        return table_files.table_as_text(self, ".json", path)

    def to_parquet(self, path: str | os.PathLike) -> None:
        """Write Parquet, with provenance in the file's metadata; raises StoreError."""
        table_files.write_table(self, path, ".parquet")

    @classmethod
    def from_csv(cls, path: str | os.PathLike) -> HeadTable:
        """Read a file of `to_csv`; raises StoreError."""
        return table_files.read_table(cls, path, ".csv")

    @classmethod
    def from_json(cls, path: str | os.PathLike) -> HeadTable:
        """Read a file of `to_json`; raises StoreError."""
        return table_files.read_table(cls, path, ".json")

    @classmethod
    def from_parquet(cls, path: str | os.PathLike) -> HeadTable:
        """Read a file of `to_parquet`; raises StoreError."""
        return table_files.read_table(cls, path, ".parquet")

    @classmethod
    def of_json(cls, text: str) -> HeadTable:
        """Read the text that `to_json` returned; raises ValueError."""
        return table_files.of_json(cls, text)

    def save(self, path: str | os.PathLike) -> None:
        """Write .parquet, .csv, .json or .toml, which `load` reads back, or the .html report.

        A file whose name ends in .svg, .pdf or .png holds the figure. A CSV is plain;
        `NAME.csv.provenance.json` beside it holds its provenance.

        Raises:
            UnknownName: another suffix.
            StoreError: the folder or disk refuses.
        """
        table_files.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> HeadTable:
        """Read .parquet, .csv, .json or .toml.

        Raises:
            UnknownName: another suffix.
            StoreError: the file cannot be read, is damaged, or holds something else.
        """
        return table_files.read_table(cls, path)

    def __len__(self) -> int:
        return len(self._frame)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HeadTable):
            return NotImplemented
        return self._provenance == other._provenance and self._frame.equals(other._frame)

    __hash__ = None  # type: ignore[assignment]  # equality compares rows, as for a list

    def __repr__(self) -> str:
        from interp.core.table_display import table_text

        return table_text(self, self._asked)

    def _repr_html_(self) -> str:
        from interp.core.table_display import as_html

        return as_html(self, self._asked)

    def _take(self, rows: Sequence[int]) -> HeadTable:
        return self._part(self._frame.iloc[list(rows)], distinct=len(set(rows)) == len(rows))

    def _part(
        self, frame: pd.DataFrame, asked: int | None = None, *, distinct: bool = True
    ) -> HeadTable:
        """Return some rows of this table, which need no check again unless rows are repeated."""
        pairs = set(row_pairs(frame))
        provenance = {key: about for key, about in self._provenance.items() if key in pairs}
        values = {key: each for key, each in self._prompt_values.items() if key in pairs}
        table = copy.copy(self) if distinct else type(self)(frame, provenance)
        if distinct:
            object.__setattr__(table, "_frame", frame.reset_index(drop=True))
            object.__setattr__(table, "_provenance", copy.deepcopy(provenance))
        object.__setattr__(table, "_prompt_values", values)
        object.__setattr__(table, "_asked", self._asked if asked is None else asked)
        return table
