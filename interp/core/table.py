"""HeadTable: what every head analysis returns, one row per head and metric, and how it was made."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core import files
from interp.core.columns import (
    COLUMNS,
    Provenance,
    as_array,
    checked_frame,
    checked_provenance,
    only,
    spread,
)
from interp.core.errors import OptionError, StoreError, UnknownName
from interp.core.order import first_of_each
from interp.core.sign import with_todays_sign

if TYPE_CHECKING:  # pandas, numpy and plotly are imported where they are used: listing stays fast
    import numpy as np
    import pandas as pd
    import plotly.graph_objects as go

_DEFAULTS = {
    "stack": "decoder",
    "n": 1,
    "unit": "",
} | dict.fromkeys(("sem", "null", "null_sem", "null_sd", "p"), math.nan)


class HeadTable:
    """Scores of heads: frozen, one row per (model, stack, layer, head, metric), and provenance.

    `sem` is the standard error of `score` over the `clusters` that its `n` prompts make up, in the
    score's unit; NaN for one cluster, or when the score is exact because it was read from weights.
    `null` is the same score where there is nothing to find (see provenance), `null_sem` the error
    of that mean and `null_sd` the spread of one such head; `p` is the chance of a score as far
    from it. A score is NaN only where n is 0: there is no mean, and 0 would be a claim.

    Raises OptionError for missing or wrong columns, a repeated row, or rows without provenance.
    """

    _frame: pd.DataFrame
    _provenance: Provenance
    _asked: int | None = None  # heads of each metric that `top` was asked for: all are displayed

    def __init__(self, frame: pd.DataFrame, provenance: Mapping[tuple[str, str], Mapping]) -> None:
        object.__setattr__(self, "_frame", checked_frame(frame))
        object.__setattr__(self, "_provenance", checked_provenance(self._frame, provenance))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a HeadTable is frozen; to_pandas() gives a copy to change")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a HeadTable is frozen; to_pandas() gives a copy to change")

    @classmethod
    def from_records(
        cls, records: Iterable[Mapping[str, Any]], provenance: Mapping[tuple[str, str], Mapping]
    ) -> HeadTable:
        """One mapping per row, or per site with `score` as [head] array and no `head`.

        model, layer, metric and score are needed; `kv_head` defaults to the head, or follows from
        `n_kv_heads` (head h reads kv head h // (n_heads // n_kv_heads), as in repeat_kv).
        Numbers given per site are spread over its heads; None is as good as absent. Raises
        OptionError for unknown fields.
        """
        import numpy as np
        import pandas as pd

        columns: dict[str, list] = {name: [] for name in COLUMNS}
        for record in records:
            unknown = set(record) - set(COLUMNS) - {"n_kv_heads"}
            missing = {"model", "layer", "metric", "score"} - set(record)
            if unknown or missing:
                wrong = f"unknown {sorted(unknown)}" if unknown else f"missing {sorted(missing)}"
                raise OptionError(f"a record of head scores has fields {wrong}; see HeadTable")
            row = _DEFAULTS | {name: x for name, x in record.items() if x is not None}
            score = as_array(row["score"])
            if score.ndim > 1 or (score.ndim == 0 and "head" not in row):
                raise OptionError(
                    "the score of a record is a number with a head, or a [head] array"
                )
            heads = row.setdefault("head", np.arange(score.size))
            n_kv_heads = row.pop("n_kv_heads", None)
            if n_kv_heads is not None:
                if "head" in record or n_kv_heads < 1 or score.size % n_kv_heads:
                    raise OptionError(f"{score.size} heads cannot share {n_kv_heads} kv heads")
                row["kv_head"] = heads // (score.size // n_kv_heads)
            row.setdefault("kv_head", heads)
            row.setdefault("clusters", row["n"])
            for name in COLUMNS:
                columns[name] += spread(name, row[name], score.size)
        return cls(pd.DataFrame(columns), provenance)

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
        """One metric of one stack from a [layer, head] array, or one [head] array per layer.

        `sem`, `n`, `null`, `null_sem`: one number for all, or the shape of `score`. `unit`: a text.
        `provenance` is that of this (model, metric). Raises OptionError for shapes that differ.
        """
        records = []
        for layer, row in enumerate(score):
            if as_array(row).ndim != 1:
                raise OptionError("score is a [layer, head] array, or one [head] array per layer")
            record = {"model": model, "metric": metric, "stack": stack, "layer": layer}
            record |= {"score": row, "n_kv_heads": n_kv_heads}
            for name, value in columns.items():
                per_layer = name != "unit" and (
                    isinstance(value, Sequence) or getattr(value, "ndim", 0) > 0
                )
                if per_layer and len(value) != len(score):
                    raise OptionError(f"{name} is for {len(value)} layers, score for {len(score)}")
                record[name] = value[layer] if per_layer else value
            records.append(record)
        return cls.from_records(records, {(model, metric): provenance} if records else {})

    @classmethod
    def concat(cls, tables: Iterable[HeadTable]) -> HeadTable:
        """All rows of all tables, in order; raises OptionError where two claim one row."""
        import pandas as pd

        tables = list(tables)
        provenance: Provenance = {}
        for table in tables:
            for key, made in table._provenance.items():
                if provenance.setdefault(key, made) != made:
                    other = provenance[key]
                    wrong = sorted(k for k in made | other if made.get(k) != other.get(k))
                    raise OptionError(
                        f"two tables of {key[1]!r} on {key[0]!r} differ in {', '.join(wrong)};"
                        " keep them apart, or give one another metric label"
                    )
        frames = [table._frame for table in tables if len(table)]
        frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*COLUMNS])
        return cls(frame, provenance)

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
        """A copy of how each (model, metric) was made."""
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
        """The rows with these values (one, or any of several); raises UnknownName for others."""
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
        return self._rows(self._frame.loc[keep])

    def top(
        self,
        k: int = 5,
        metric: str | None = None,
        *,
        by: str = "end",
    ) -> HeadTable:
        """The k heads that are shown first of a metric, or of each: units differ between metrics.

        `by` is "end", the end of the scale that the metric declares: highest first, lowest first,
        or half of the k from either end of a signed metric (where the table does not say, of one
        with scores of both signs); or "score" for the highest, "lowest",
        "abs" for the largest either way, "null" for the farthest from the null either way (from 0
        where there is none). Equal scores keep the table's order; heads without a score (n = 0)
        never count. Raises OptionError, UnknownName.
        """
        frame = (self if metric is None else self.where(metric=metric))._frame
        ends = {metric: made.get("end") for (_, metric), made in self._provenance.items()}
        return self._rows(first_of_each(frame, k, by, ends), asked=k)

    def matrix(
        self,
        metric: str,
        *,
        model: str | None = None,
        stack: str | None = None,
        column: str = "score",
    ) -> np.ndarray:
        """One column as [layer, head] float64, NaN where the table has no row.

        All metrics of one model and stack get one shape. Raises OptionError where the table has
        several models or stacks and none is named.
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

    def plot(self, metric: str, **options: Any) -> go.Figure:
        """A plotly heat map, layers x heads, one panel per (model, stack); see interp.draw.plot."""
        from interp.draw.plot import heatmap

        return heatmap(self, metric, **options)

    def save_html(self, path: str | os.PathLike, *, title: str = "Attention heads") -> None:
        """Write the page of `interp report`, whole or not at all; raises StoreError, OptionError.

        Colours span the scores; `interp.report.write_report` takes the ranges of metrics.
        """
        from interp.report import write_report

        write_report(self, path, title=title)

    def to_pandas(self) -> pd.DataFrame:
        """A copy of the rows as a DataFrame."""
        return self._frame.copy()

    def to_csv(self, path: str | os.PathLike | None = None) -> str:
        """Write CSV, provenance in leading `# ` lines, and return its text; raises StoreError."""
        return self._written(path, files.to_csv(self._frame, self._provenance))

    def to_json(self, path: str | os.PathLike | None = None) -> str:
        """Write JSON (NaN as null) and return its text; raises StoreError."""
        return self._written(path, files.to_json(self._frame, self._provenance))

    def to_parquet(self, path: str | os.PathLike) -> None:
        """Write Parquet, provenance in the file's metadata; raises StoreError."""
        files.write_atomically(Path(path), files.to_parquet(self._frame, self._provenance))

    @classmethod
    def from_csv(cls, path: str | os.PathLike) -> HeadTable:
        """Read what `to_csv` wrote; raises StoreError."""
        return cls._decoded(path, lambda content: files.from_csv(content.decode("utf-8-sig")))

    @classmethod
    def from_json(cls, path: str | os.PathLike) -> HeadTable:
        """Read what `to_json` wrote; raises StoreError."""
        return cls._decoded(path, lambda content: files.from_json(content.decode("utf-8-sig")))

    @classmethod
    def from_parquet(cls, path: str | os.PathLike) -> HeadTable:
        """Read what `to_parquet` wrote; raises StoreError."""
        return cls._decoded(path, lambda content: files.from_parquet(content)[:2])

    @classmethod
    def read(cls, path: str | os.PathLike) -> HeadTable:
        """Read .csv, .json or .parquet; raises StoreError, UnknownName for another suffix."""
        readers = {".csv": cls.from_csv, ".json": cls.from_json, ".parquet": cls.from_parquet}
        suffix = Path(path).suffix.lower()
        if suffix not in readers:
            raise UnknownName("table format", suffix, readers)
        return readers[suffix](path)

    def __len__(self) -> int:
        return len(self._frame)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HeadTable):
            return NotImplemented
        return self._provenance == other._provenance and self._frame.equals(other._frame)

    __hash__ = None  # type: ignore[assignment]  # it compares by its rows, as a list does

    def __repr__(self) -> str:
        from interp.core.table_display import as_text

        return as_text(self, self._asked)

    def _repr_html_(self) -> str:
        from interp.core.table_display import as_html

        return as_html(self, self._asked)

    def _rows(self, frame: pd.DataFrame, asked: int | None = None) -> HeadTable:
        pairs = set(zip(frame["model"], frame["metric"], strict=True))
        kept = {key: made for key, made in self._provenance.items() if key in pairs}
        table = type(self)(frame, kept)
        object.__setattr__(table, "_asked", self._asked if asked is None else asked)
        return table

    @staticmethod
    def _written(path: str | os.PathLike | None, text: str) -> str:
        if path is not None:
            files.write_atomically(Path(path), text.encode())
        return text

    @classmethod
    def _decoded(cls, path: str | os.PathLike, decode: Any) -> HeadTable:
        import pandas as pd

        content = files.read_bytes(Path(path))
        try:
            columns, provenance = decode(content)
            frame = pd.DataFrame(columns)
            return cls(*with_todays_sign(frame, provenance))
        except (ValueError, KeyError, TypeError, AttributeError, OptionError) as error:
            raise StoreError(
                f"{path} is no table of head scores, or is damaged: {error}"
            ) from error
