"""Common base class of results: rows with errors and nulls, order, files and provenance."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from interp.core.display import Displayed
from interp.core.errors import OptionError, UnknownName
from interp.core.head import Head
from interp.core.long_rows import clusters_of_rows, completed, first_rows, t_bounds
from interp.core.presenter import drawn

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import plotly.graph_objects as go


class Result(Displayed):
    """Rows with their errors, and a record of how they were computed.

    Every public computation returns a result. A subclass defines:

    - `_rows()`: a DataFrame with one row per unit of analysis (a head, an edge, a token ...).
      Missing columns of `interp.core.long_rows.STANDARD` are added by `to_pandas`; `_same_as` names
      those that have another name, `_facts()` gives values that are equal in all rows (the model is
      read from the provenance).
    - `provenance`: a mapping, as field or property; see `interp.model.content`.
    - `per_prompt`: an array `[row, prompt]`, or the class attribute None with the reason in
      `why_no_per_prompt`. `clusters` may label the prompts.

    and, where they apply:

    - `_units`: the columns that name the unit of analysis. Rows with `layer` and `head` are heads.
    - `_per_row`: the names of dataclass fields with one entry per row, which `top` cuts; or its own
      method `_take`.
    - `bounds(level)`: an interval other than the t interval of score, sem and n.
    - `plot()`, `_by` (the default order of `top`), `shown()`, `__repr__`.
    - `_holds`: dataclasses among the values of its fields, which `load` recreates.
    - `_graphml()`: the text of a file with this suffix, for `save`.

    A dataclass must set `repr=False` or define `__repr__`. `tests/core/test_result_contract.py`
    covers all subclasses; a new one needs one line there that makes an example.
    """

    provenance: Any
    per_prompt: Any
    why_no_per_prompt: str = ""
    _units: ClassVar[tuple[str, ...]] = ()
    _same_as: ClassVar[Mapping[str, str]] = {}
    _per_row: ClassVar[tuple[str, ...]] = ()
    _by: ClassVar[str] = "score"
    _holds: ClassVar[tuple[type, ...]] = ()
    _kept: Sequence[int] | None = None

    def _rows(self) -> pd.DataFrame:
        """Return all rows, in the result's own columns."""
        raise AssertionError(f"{type(self).__name__} has no _rows()")

    def _facts(self) -> Mapping[str, Any]:
        """Return values of standard columns that are equal in every row."""
        return {}

    def wide(self) -> pd.DataFrame:
        """Return the rows in the result's own columns, as displayed and as written to pages."""
        frame = self._rows()
        return frame if self._kept is None else frame.iloc[list(self._kept)]

    def to_pandas(self) -> pd.DataFrame:
        """Return rows with model, unit of analysis, metric, score, sem, low, high, null, n, unit.

        Further columns are specific to the result. `low` and `high` bound the 95 % interval; a
        number that does not exist is NaN.
        """
        if self._kept is None:
            return self._completed(self._rows())
        whole = copy.copy(self)  # whose values per prompt are those of all rows
        object.__setattr__(whole, "_kept", None)
        return whole.to_pandas().iloc[list(self._kept)].reset_index(drop=True)

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        about = self.provenance
        facts = {"model": str(about.get("model_id") or about.get("model") or "")}
        frame = completed(rows, self._units, self._same_as, facts | dict(self._facts()))
        if not {"low", "high"} & {*rows.columns, *self._same_as}:
            bounds = self._bounds_of(frame, 0.95)
            frame["low"], frame["high"] = bounds[:, 0], bounds[:, 1]
        return frame

    def _bounds_of(self, frame: pd.DataFrame, level: float) -> np.ndarray:
        labels = getattr(self, "clusters", None)
        if labels is not None and "clusters" not in frame.columns:
            frame = frame.assign(clusters=clusters_of_rows(self.per_prompt, labels))
        return t_bounds(frame, level)

    def bounds(self, level: float = 0.95) -> np.ndarray:
        """Return the confidence interval of each row, `[row, 2]`; see `interval`."""
        return self._bounds_of(self.to_pandas(), level)

    def interval(self, level: float = 0.95) -> pd.DataFrame:
        """Return the rows with `low` and `high` at another confidence level than 95 %.

        The interval is the score plus and minus its standard error times a t quantile, whose
        degrees of freedom are one less than the number of clusters of prompts, unless the class
        overrides `bounds`. NaN without a standard error.

        Raises:
            OptionError: the level does not lie between 0 and 1.
        """
        bounds = self.bounds(level)
        return self.to_pandas().assign(low=bounds[:, 0], high=bounds[:, 1])

    def top(self, k: int = 5, *, by: str | None = None) -> Self:
        """Return the first k rows, as a result of the same type that displays all of them.

        Args:
            k: the number of rows.
            by: "score" or any numeric column, highest first; "lowest", "abs", "null"; see
                `interp.core.long_rows.first_rows`. The default is the order of the class.

        Raises:
            OptionError: k is negative.
            UnknownName: there is no such order.
        """
        part = self._take(first_rows(self.to_pandas(), k, by or self._by))
        object.__setattr__(part, "_asked", k)
        return part

    def heads(self) -> tuple[Head, ...]:
        """Return the heads of the rows, each once, with their stack.

        They are accepted by edits such as `zero(...)`, by `heads=` and, printed, by `--heads`.

        Raises:
            OptionError: the rows are not heads.
        """
        heads = [head for head in self._head_of_rows() if head is not None]
        if not heads and (len(self) or not {"layer", "head"} <= set(self.to_pandas().columns)):
            about = ", ".join(self._units) or "no unit of a model"
            raise OptionError(
                f"the rows of {self._name} are about {about}, not about heads; .heads() "
                "needs rows with a layer and a head, as scores of heads have"
            )
        return tuple(dict.fromkeys(heads))

    def _head_of_rows(self) -> list[Head | None]:
        """Return the head of each row; None for a row about something else."""
        frame = self.to_pandas()
        if not {"layer", "head"} <= set(frame.columns):
            return [None] * len(frame)
        stacks = frame["stack"] if "stack" in frame.columns else [None] * len(frame)
        rows = zip(frame["layer"], frame["head"], stacks, strict=True)
        is_head = frame["head"].notna()
        return [
            Head(int(layer), int(h), s) if there else None
            for there, (layer, h, s) in zip(is_head, rows, strict=True)
        ]

    def compare(self, other: Result) -> Result:
        """Compute the row-wise differences `self - other` to another result on the same prompts.

        Differences are paired over prompts, or over their clusters: t test and interval of the mean
        difference, with p corrected over the rows by Holm's method and by Benjamini and Hochberg's
        (p_holm and p_bh, over all rows also after `top`). `interp.compare` compares models.

        Raises:
            OptionError: the prompts differ, one of the results has no values per prompt, or no rows
                have the same unit of analysis.
        """
        return drawn("differences", self, other)

    def plot(self, k: int = 20) -> go.Figure:
        """Plot the first k rows as bars with their 95 % intervals."""
        return drawn("plot", self, k)

    def save(self, path: str | os.PathLike) -> Any:
        """Write a file whose suffix gives the format: a table, a page or a figure.

        Some results also support graphml. Files of parquet, csv, json and toml contain the rows for
        other programs, and all values for `load`, which returns an equal result; html is the page;
        svg, pdf and png hold the figure, whose font, size and caption `interp.report.save_figure`
        sets. The file appears whole or not at all.

        Raises:
            UnknownName: the suffix is unknown; the message lists the known ones.
            StoreError: the folder or disk refuses.
        """
        from interp.core.result_files import write_result

        write_result(self, path)

    def publish(self, to: str, out: str | os.PathLike | None = None) -> str:
        """Send the rows, the page and the provenance to where a team keeps results.

        Args:
            to: "dataset" for a folder with a card, which `huggingface_hub` can upload and
                `datasets` loads; "tensorboard", "wandb" or "mlflow", which need their packages.
            out: the folder: required for the first two. Without it wandb and mlflow send to where
                their own settings say (WANDB_MODE, MLFLOW_TRACKING_URI); with it nothing leaves
                the machine.

        Returns:
            where the result is.

        Raises:
            UnknownName: there is no such tracker.
            OptionError: its package is not installed, or the folder is missing.
            StoreError: the folder of a dataset is not empty, or cannot be written.
        """
        return drawn("publish", self, to, out)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Read a parquet, csv, json or toml file that `save` of this class wrote.

        Raises:
            StoreError: the file cannot be read, is damaged, or holds another kind of result.
            UnknownName: the suffix is unknown.
        """
        from interp.core.result_files import read_result

        return read_result(cls, path)

    def equals(self, other: object) -> bool:
        """Return True for a result of the same type with the same values, NaN equal to NaN."""
        from interp.core.encoding import as_json_data

        if type(self) is not type(other):
            return False
        return as_json_data(self._stored()) == as_json_data(other._stored())  # type: ignore[attr-defined]

    @classmethod
    def _types(cls) -> tuple[type, ...]:
        """Return the types in `_holds`; overridden where importing them early must be avoided."""
        return cls._holds

    def _stored(self) -> Self:
        """Return the result that files hold: itself, unless its values are stored elsewhere."""
        return self

    def __iter__(self) -> Iterator[Any]:
        """Yield one mapping of columns to values per row."""
        yield from self.to_pandas().to_dict("records")

    def __len__(self) -> int:
        return len(self.to_pandas())

    def __getitem__(self, name: str | Head | tuple[int, int]) -> Self:
        """Return the rows of one metric, or of one head; raises UnknownName."""
        frame = self.to_pandas()
        named = frame["metric"].tolist()
        if name in named:
            return self._take([row for row, metric in enumerate(named) if metric == name])
        try:
            head = Head.parse(name)
        except OptionError:
            raise UnknownName("metric", str(name), dict.fromkeys(named)) from None
        known = self.heads()
        if head not in known:
            raise UnknownName("head", str(head), map(str, known))
        return self._take([row for row, each in enumerate(self._head_of_rows()) if each == head])

    def _take(self, rows: Sequence[int]) -> Self:
        """Return some of the rows, in the given order."""
        part = copy.copy(self)
        if self._per_row:
            cut = {name: picked(getattr(self, name), rows) for name in self._per_row}
            part = dataclasses.replace(self, **cut)  # type: ignore[type-var]
        else:
            before = self._kept
            positions = list(rows) if before is None else [before[row] for row in rows]
            object.__setattr__(part, "_kept", positions)
        object.__setattr__(part, "_asked", self._asked)
        return part


def picked(values: Any, rows: Sequence[int]) -> Any:
    """Return the entries of some rows of a tuple, list or array; None stays None."""
    if values is None:
        return None
    if isinstance(values, (tuple, list)):
        return type(values)(values[row] for row in rows)
    return values[list(rows)]
