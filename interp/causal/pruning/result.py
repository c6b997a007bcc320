"""Pruning curve: the task against the number of removed players, with standard errors."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int

from interp.causal.pruning.folds import loop_interval
from interp.core.clusters import cluster_count
from interp.core.csv_rows import csv_text
from interp.core.errors import OptionError, StoreError
from interp.core.files import read_bytes, write_atomically
from interp.core.intervals import around
from interp.core.json_document import stored_document
from interp.core.presenter import drawn, present
from interp.core.result import Result
from interp.core.standard_errors import standard_error
from interp.core.statistics import percentile_interval, tails_of

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Array = np.ndarray
_FORMAT = "interp PruningCurve 2"
_OPTIONAL = ("clusters", "random_counts")


class Measured(NamedTuple):
    """Number with the ends of its 95 % interval, which are NaN if there is only one prompt."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.value:.3g}"
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True, eq=False)
class PruningCurve(Result):
    """Task after each step of a pruning run, beside random orders.

    Its rows are counts of removed players; their null is the mean over random orders. Intervals are
    t intervals over clusters of prompts. `top` returns some of the counts, which are not a whole
    curve and have no area.

    Args:
        name: name of the ranking, for legends.
        counts: numbers of removed players; the first is 0, the undisturbed model.
        removed: labels in the order of removal.
        per_prompt: the task's value at each count for each prompt.
        random_per_prompt: the same values for every random order, on the same prompts.
        order: "least-first" or "most-first".
        made: provenance.
        held_out_per_prompt: the task at each count for each prompt, with the players removed in the
            order from the other half of the prompts; None without cross-fitting.
        loops: the held-out area in bootstrap draws, each ranked and judged again.
        clusters: a label per prompt if prompts are dependent; standard errors are over clusters.
        random_counts: the counts at which random orders were measured; None for all counts.
    """

    name: str
    counts: Int[Array, " count"]
    removed: tuple[str, ...]
    per_prompt: Float[Array, "count prompt"] = field(repr=False)
    random_per_prompt: Float[Array, "draw count prompt"] = field(repr=False)
    n_players: int
    order: str
    unit: str
    higher_is_better: bool
    seed: int
    made: Mapping[str, Any] = field(repr=False)
    held_out_per_prompt: Float[Array, "count prompt"] | None = field(default=None, repr=False)
    loops: tuple[float, ...] = field(default=(), repr=False)
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    random_counts: Int[Array, " random_count"] | None = field(default=None, repr=False)
    _units = ("n_removed",)
    _per_row = ("counts", "per_prompt", "held_out_per_prompt")
    _same_as = MappingProxyType(
        {"score": "value", "null": "random_mean", "n": "n_prompts", "clusters": "n_clusters"}
    )

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Provenance of the curve."""
        return self.made

    @property
    def value(self) -> Float[Array, " count"]:
        """Mean of the task over prompts."""
        return self.per_prompt.mean(1)

    @property
    def clean(self) -> float:
        """Value of the task for the undisturbed model."""
        return float(self.per_prompt[0].mean())

    @property
    def n_clusters(self) -> int:
        """Number of clusters of the prompts; without labels the number of prompts."""
        return cluster_count(self.per_prompt.shape[1], self.clusters)

    @property
    def random(self) -> Float[Array, "draw random_count"]:
        """Mean of the task over prompts for each random order, at `measured_at_random`."""
        return self.random_per_prompt.mean(2)

    @property
    def measured_at_random(self) -> Int[Array, " random_count"]:
        """Counts at which random orders were measured."""
        return self.counts if self.random_counts is None else self.random_counts

    def bounds(self, level: float = 0.95) -> Float[Array, "count 2"]:
        """Return the confidence interval over clusters of prompts at each count, by t quantiles.

        It is NaN for one cluster.
        """
        if self.n_clusters < 2:
            return np.full((len(self.counts), 2), math.nan)
        errors = [(standard_error(self.per_prompt, self.clusters), self.n_clusters - 1)]
        return around(self.value, errors, level)

    def band(self, level: float = 0.95) -> Float[Array, "random_count 2"]:
        """Return the range of the middle `level` of random orders at each of their counts.

        It is NaN without random orders.
        """
        if not len(self.random):
            return np.full((len(self.measured_at_random), 2), math.nan)
        return percentile_interval(self.random, tails_of(level), axis=0).T

    @cached_property
    def area(self) -> Measured:
        """Mean advantage of the ranking over random orders, across the share removed.

        The area between the curve and the mean of the random orders over the share of players
        removed (0 to the last count's share, trapezoids), divided by that share: a mean gap in the
        task's unit. Positive is good for the ranking: with "least-first" the task stays better than
        in random orders, with "most-first" it gets worse sooner. The interval is over prompts and
        random orders, by t quantiles, for a fixed ranking: one that was made on the same prompts is
        biased in its favour; see `held_out_area`.

        Raises:
            OptionError: the curve was made without random orders.
        """
        return self._area(self.per_prompt)

    @cached_property
    def held_out_area(self) -> Measured | None:
        """Held-out `area`, on prompts that the ranking was not made on; None without cross-fitting.

        Each half of the prompts is judged by the order from the other. The interval covers the
        whole procedure: prompts are drawn, split, ranked and judged again; without loops both
        rankings are taken as fixed.

        Raises:
            OptionError: the curve was made without random orders.
        """
        if self.held_out_per_prompt is None:
            return None
        area = self._area(self.held_out_per_prompt)
        if not self.loops:
            return area
        loops = [self._sign * x for x in self.loops]
        low, high = loop_interval(area.value, loops, self.n_clusters)
        return Measured(area.value, low, high)

    @property
    def _sign(self) -> int:
        """Sign that makes the gap to random orders positive for a good ranking."""
        return 1 if self.higher_is_better == (self.order == "least-first") else -1

    def _area(self, per_prompt: Float[Array, "count prompt"]) -> Measured:
        if not self._whole:
            raise OptionError(
                "area needs the whole curve, but these are only some of its counts; "
                "use the curve before top"
            )
        if not len(self.random):
            raise OptionError("area needs random orders as a baseline; set n_random")
        sign = self._sign
        share = self.counts / self.counts[-1]
        ranked = sign * np.trapezoid(per_prompt, share, axis=0)  # [prompt]
        share = self.measured_at_random / self.counts[-1]
        other = sign * np.trapezoid(self.random_per_prompt, share, axis=1)  # [draw, prompt]
        value = float(ranked.mean() - other.mean())
        if self.n_clusters < 2:
            return Measured(value, math.nan, math.nan)
        over_prompts = float(standard_error((ranked - other.mean(0))[None], self.clusters)[0])
        over_orders = float(standard_error(other.mean(1)[None])[0])
        errors = [(over_prompts, self.n_clusters - 1.0), (over_orders, len(other) - 1.0)]
        low, high = around(np.array([value]), errors)[0].tolist()
        return Measured(value, low, high)

    def n_free(self, tolerance: float, *, held_out: bool = False) -> int:
        """Return the number of players removed before the task worsens by over `tolerance`.

        This is the largest measured count up to which the mean over prompts is never worse than
        that of the undisturbed model by more than `tolerance` (in the task's unit). A later
        recovery does not count. With `held_out`, it uses prompts that the ranking was not made on.

        Raises:
            OptionError: the tolerance is negative or not finite, or there are no held-out values.
        """
        if held_out and self.held_out_per_prompt is None:
            raise OptionError(f"{self.name}: there are no held-out values; see `made['ranked_on']`")
        if not (math.isfinite(tolerance) and tolerance >= 0):
            raise OptionError(
                f"tolerance={tolerance}; it must be a decrease of the task, 0 or more"
            )
        sign = 1 if self.higher_is_better else -1
        value = self.value
        if held_out and self.held_out_per_prompt is not None:
            value = self.held_out_per_prompt.mean(1)
        worse = sign * (self.clean - value) > tolerance
        first = int(np.argmax(worse)) if worse.any() else len(worse)
        return int(self.counts[first - 1])

    @property
    def _whole(self) -> bool:
        """False if `top` has dropped counts."""
        return (
            len(self.counts) > 0 and self.counts[0] == 0 and bool(np.all(np.diff(self.counts) > 0))
        )

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": self.name, "unit": self.unit}

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        return super()._completed(rows.assign(sem=standard_error(self.per_prompt, self.clusters)))

    def _take(self, rows: Sequence[int]) -> Self:
        part = super()._take(rows)
        kept = [
            int(np.argmax(self.measured_at_random == c))
            for c in part.counts
            if c in self.measured_at_random
        ]
        some = None if self.random_counts is None else self.random_counts[kept]
        part = replace(part, random_per_prompt=self.random_per_prompt[:, kept], random_counts=some)
        object.__setattr__(part, "_asked", self._asked)
        return part

    def _rows(self) -> pd.DataFrame:
        """Return one row per count: the player removed last, and the task values."""
        import pandas as pd

        interval, none = self.bounds(), np.full(len(self.counts), math.nan)
        drawn = np.full((len(self.counts), 3), math.nan)  # NaN where no random order was measured
        if len(self.random):
            at = {int(c): row for row, c in enumerate(self.counts)}
            rows = [at[int(c)] for c in self.measured_at_random]
            drawn[rows] = np.column_stack([self.random.mean(0), self.band()])
        return pd.DataFrame(
            {
                "n_removed": self.counts,
                "share_removed": self.counts / self.n_players,
                "last_removed": ["" if c == 0 else self.removed[c - 1] for c in self.counts],
                "value": self.value,
                "low": interval[:, 0],
                "high": interval[:, 1],
                "held_out": none if (x := self.held_out_per_prompt) is None else x.mean(1),
                "random_mean": drawn[:, 0],
                "random_low": drawn[:, 1],
                "random_high": drawn[:, 2],
                "n_prompts": self.per_prompt.shape[1],
                "n_clusters": self.n_clusters,
            }
        )

    def plot(self) -> go.Figure:  # type: ignore[override]  # every row is drawn
        """Plot the curve with its interval, the random band, and the undisturbed model's value."""
        if not self._whole:
            return super().plot(len(self))
        return drawn("plot", self)

    def save(self, path: str | os.PathLike) -> tuple[Path, ...]:
        """Write one file in the format of its suffix, or pruning.csv, .json and .html in a folder.

        Raises:
            UnknownName: the suffix is not one of those of `Result.save`.
            StoreError: the file cannot be written.
        """
        if Path(path).suffix and not Path(path).is_dir():
            super().save(path)
            return (Path(path),)
        return self._save_all(Path(path))

    def _save_all(self, folder: Path) -> tuple[Path, Path, Path]:
        paths = folder / "pruning.csv", folder / "pruning.json", folder / "pruning.html"
        frame = self.wide()
        write_atomically(paths[0], csv_text(frame).encode())
        write_atomically(paths[1], self.to_json())
        parts = [("In numbers", self.summary, frame)]
        content = drawn("folder_page", self, sections=parts)
        write_atomically(paths[2], content)
        return paths

    def to_json(self) -> bytes:
        """Return all values per prompt and the provenance as one JSON document; see `read`."""
        from interp.core.json_document import json_document

        # areas are computed again
        values = {
            k: v for k, v in vars(self).items() if k not in ("area", "held_out_area", "_asked")
        }
        values = {k: v for k, v in values.items() if k not in _OPTIONAL or v is not None}
        return json_document({"format": _FORMAT} | values)

    @classmethod
    def read(cls, path: str | os.PathLike) -> PruningCurve:
        """Read the `pruning.json` that `save` wrote, or the folder that holds it.

        Raises:
            StoreError: the file does not exist, or has another format.
        """
        path = Path(path)
        path = path / "pruning.json" if path.is_dir() else path
        content = read_bytes(path)
        try:
            document = stored_document(content)
            if document.pop("format") != _FORMAT:
                raise ValueError(f"its 'format' is not '{_FORMAT}'")
            n_prompts = len(document["per_prompt"][0])
            at = document.pop("random_counts", None)
            shape = (-1, len(document["counts"] if at is None else at), n_prompts)
            drawn = np.array(document.pop("random_per_prompt"), dtype=np.float64)
            apart = document.pop("held_out_per_prompt", None)
            shared = document.pop("clusters", None)
            return cls(
                counts=np.array(document.pop("counts"), dtype=np.int64),
                removed=tuple(document.pop("removed")),
                per_prompt=np.array(document.pop("per_prompt"), dtype=np.float64),
                random_per_prompt=drawn.reshape(shape),
                held_out_per_prompt=None if apart is None else np.array(apart, dtype=np.float64),
                loops=tuple(document.pop("loops", ())),
                clusters=None if shared is None else tuple(shared),
                random_counts=None if at is None else np.array(at, dtype=np.int64),
                **document,
            )
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise StoreError(f"{path} is not a pruning curve, or is damaged: {error}") from error

    def __repr__(self) -> str:
        return f"PruningCurve({self.summary})"

    @property
    def summary(self) -> str:
        """Return the curve in one line."""
        if not self._whole:
            values = ", ".join(
                f"{c}: {v:.3g}" for c, v in zip(self.counts, self.value, strict=True)
            )
            return f"{self.name}, {self.order}, {self.unit} by number removed: {values}"
        who = self.made.get("players", "players")
        sentence = (
            f"{self.name}, {self.order}: {self.counts[-1]} of {self.n_players} {who} removed, "
            f"{self.clean:.3g} to {self.value[-1]:.3g} {self.unit}"
        )
        if len(self.random):
            sentence += f"; better than random orders by {self.advantage}"
        return sentence

    @property
    def advantage(self) -> str:
        """Describe the advantage over random orders, with the prompts it was measured on."""
        if self.held_out_area is not None:
            return (
                f"{self.held_out_area} on held-out prompts, {self.area} on those it was ranked on"
            )
        where = {
            "these prompts": ", on the prompts it was ranked on, which is biased in its favour",
            "other prompts": ", on prompts it was not ranked on",
        }.get(self.made.get("ranked_on", ""), "")
        return f"{self.area} on average{where}"

    def _repr_html_(self) -> str:
        from interp.draw.page import html_table, text

        return f"<p>{text(self.summary)}</p>{html_table(self.wide())}"


present(
    PruningCurve,
    plot="interp.report.pruning_page:plot_curve",
    folder_page="interp.report.atlas.single:pruning_page",
    text="interp.report.printed.importance:pruning_text",
    rows="interp.report.printed.importance:pruning_rows",
)
