"""Result whose columns, facts and kind are stated by the function that computes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from interp.core.errors import OptionError
from interp.core.long_rows import STANDARD
from interp.core.presenter import drawn, form_of, present, resolved
from interp.core.result import Result, picked
from interp.core.statistics import bootstrap_bounds

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@dataclass(frozen=True, eq=False, repr=False)
class ResultRows(Result):
    """Rows of one computation. The function that returns them documents its columns and facts.

    Columns, arrays and facts are attributes: `found.score` is a numpy array with the entry of each
    row. `to_pandas()["heads"]` is a column whose name is that of a method.

    Args:
        kind: name of what was computed, under which its presenter is registered.
        columns: a mapping of names to one value per row, or one for all rows; or a DataFrame. Kept
            as a mapping to arrays of numbers and tuples of anything else.
        units: columns that name the unit of analysis of a row.
        provenance: model, prompts, options and versions.
        facts: by name, values that hold for all rows. Those named as a column of
            `interp.core.long_rows.STANDARD`, such as the unit, fill this column; `limits` are the
            ends of possible scores, which no interval exceeds.
        per_prompt: array of the values behind the means, `[row, prompt]`; None with the reason in
            `why_no_per_prompt`.
        arrays: by name, further values per row, `[row, ...]`, which are no columns. `quantiles`
            are those of the bootstrap behind each score, at the fact `probabilities`, from which
            intervals of any level are made.
        clusters: a label per prompt where prompts share something.
        by: default order of `top`.
        same_as: standard columns that repeat another column, such as score and "rank".
        objects: by name, what files do not hold, such as a trained dictionary.
        interval_by: "t"; "bootstrap", percentiles of the mean over draws of prompts or clusters;
            "kind", chosen by the kind of values, as those of `interp.score`; or "own", by the
            function `bounds` of its presenter.
        shown_by: column by whose absolute value rows are displayed; "" keeps their order.
    """

    kind: str
    columns: Any = field(repr=False)
    units: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    per_prompt: Any = field(default=None, repr=False)
    why_no_per_prompt: str = ""
    arrays: Mapping[str, Any] = field(default_factory=dict, repr=False)
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    by: str = "score"
    same_as: Mapping[str, str] = field(default_factory=dict, repr=False)
    objects: Mapping[str, Any] = field(default_factory=dict, repr=False)
    interval_by: str = "t"
    shown_by: str = ""

    def __post_init__(self) -> None:
        import pandas as pd

        frame = pd.DataFrame(self.columns)
        columns = {str(name): _plain(frame[name]) for name in frame.columns}
        object.__setattr__(self, "columns", columns)

    def __getattr__(self, name: str) -> Any:
        # not through `self`: a copy that is being made has no fields yet
        parts = [] if name.startswith("_") else [vars(self).get(x, {}) for x in _NAMED]
        for part in parts:
            if name in part:
                value = part[name]
                return np.asarray(value) if part is self.columns else value
        known = ", ".join(dict.fromkeys(x for part in parts for x in part))
        raise AttributeError(f"{vars(self).get('kind')} has no {name!r}; it has {known}")

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self.columns, *self.arrays, *self.facts, *self.objects]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __repr__(self) -> str:
        form = form_of("summary", self)
        return resolved(form)(self) if form else super().__repr__()

    def plot(self, *args: Any, **options: Any) -> go.Figure:
        """Plot the result; the options are those of its presenter's figure."""
        return drawn("plot", self, *args, **options)

    @property
    def _name(self) -> str:
        return self.kind

    def require_kind(self, kind: str, source: str) -> None:
        """Raise OptionError unless the rows are of a kind, which `source` returns."""
        if self.kind != kind:
            raise OptionError(f"these are {self.kind}, not {kind}; give what {source} returns")

    @property
    def _units(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.units

    @property
    def _by(self) -> str:  # type: ignore[override]
        return self.by

    @property
    def _order(self) -> str | None:  # type: ignore[override]
        return self.shown_by or None

    @property
    def _same_as(self) -> Mapping[str, str]:  # type: ignore[override]
        return self.same_as

    def _stored(self) -> Self:
        return dataclasses.replace(self, objects={}) if self.objects else self

    def _facts(self) -> Mapping[str, Any]:
        return {name: self.facts[name] for name in STANDARD if name in self.facts}

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame({name: self.columns[name] for name in self.columns})

    def _bounds_of(self, frame: pd.DataFrame, level: float) -> np.ndarray:
        if "quantiles" in self.arrays:
            from interp.core.statistics import interval_between

            return interval_between(self.quantiles, self.facts["probabilities"], level)
        if self.interval_by != "t":
            return self._own_bounds(level)
        if not {"low", "high"} & {*self.columns, *self.same_as}:
            limits = self.facts.get("limits", (-np.inf, np.inf))
            return super()._bounds_of(frame, level).clip(*limits)
        stated = frame[["low", "high"]].to_numpy(float)
        if level == 0.95:
            return stated
        if not np.allclose(super()._bounds_of(frame, 0.95), stated, equal_nan=True):
            raise OptionError(
                f"the intervals of {self.kind} are known at level 0.95 only, not at {level}; they "
                "are not those of the t distribution"
            )
        return super()._bounds_of(frame, level)

    def _own_bounds(self, level: float) -> np.ndarray:
        """Return the intervals of a kind whose values are not averaged by t."""
        if self.interval_by == "own":
            return drawn("bounds", self, level)
        values = np.asarray(self.per_prompt)
        if self.interval_by == "bootstrap":
            return bootstrap_bounds(values, level, self.clusters)
        from interp.core.intervals import mean_intervals

        bounds = self.facts.get("limits", (None, None))
        return mean_intervals(values, level, clusters=self.clusters, bounds=bounds).ends

    def _take(self, rows: Sequence[int]) -> Self:
        parts = {
            name: {key: picked(values, rows) for key, values in getattr(self, name).items()}
            for name in ("columns", "arrays")
        }
        part = dataclasses.replace(self, **parts, per_prompt=picked(self.per_prompt, rows))
        object.__setattr__(part, "_asked", self._asked)
        return part


_NAMED = ("columns", "arrays", "facts", "objects")


def _plain(column: Any) -> Any:
    """Return the values of a column as an array of numbers, or a tuple of anything else."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_numeric_dtype(column) or is_bool_dtype(column):
        return column.to_numpy()
    return tuple(column.tolist())


present(ResultRows, holds=(ResultRows, "interp.core.table:HeadTable"))


class MetricRows:
    """Part of a result with a metric in every row and the cluster of each prompt by metric.

    A subclass has the fields `rows`, whose items name a "metric", and `labels`.
    """

    rows: tuple[Mapping[str, Any], ...]
    labels: Mapping[str, tuple[str, ...] | None]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metric labels, in order of appearance."""
        return tuple(dict.fromkeys(row["metric"] for row in self.rows))

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """Cluster of each prompt, in a result of one metric whose prompts share something."""
        clusterings = {self.labels[metric] for metric in self.metrics}
        return clusterings.pop() if len(clusterings) == 1 else None
