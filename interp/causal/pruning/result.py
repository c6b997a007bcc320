"""What a pruning run gives: the task against the number of players removed, with its errors."""

from __future__ import annotations

import json
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

from interp.causal.importance import standard_error
from interp.causal.pruning.folds import loop_interval
from interp.core.clusters import cluster_count
from interp.core.doors import behind
from interp.core.errors import OptionError, StoreError
from interp.core.files import read_bytes, write_atomically
from interp.core.intervals import around
from interp.core.result import Result
from interp.core.statistics import percentile_interval, tails_of

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Array = np.ndarray
_FORMAT = "interp PruningCurve 2"
_READS = (_FORMAT, "interp PruningCurve 1")  # the first had nothing held out


class Measured(NamedTuple):
    """A number with the ends of its 95 % interval, NaN where there is one prompt only."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.value:.3g}"
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True, eq=False)
class PruningCurve(Result):
    """The task after each step of a pruning run, beside the same in random orders.

    Its rows are counts of players removed; their null is the mean over random orders. Intervals are
    t intervals over clusters of prompts. `top` gives some of the counts, which are no whole curve:
    they have no area.

    Args:
        name: of the ranking, for legends.
        counts: how many players are out; the first is 0, the undisturbed model.
        removed: labels in the order in which they were taken out.
        per_prompt: the task's value at each count for each prompt.
        random_per_prompt: the same for every random order, on the same prompts.
        order: "least-first" or "most-first".
        made: provenance.
        held_out_per_prompt: the task at each count for each prompt, with the players removed in
            the order that the other half of the prompts gave; None where there are no halves.
        loops: the held-out area in bootstrap draws, each ranked and judged anew.
        clusters: a label per prompt where prompts share something; errors are over clusters.
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
    _units = ("n_removed",)
    _per_row = ("counts", "per_prompt", "held_out_per_prompt")
    _same_as = MappingProxyType(
        {"score": "value", "null": "random_mean", "n": "n_prompts", "clusters": "n_clusters"}
    )

    @property
    def provenance(self) -> Mapping[str, Any]:
        """How the curve was made."""
        return self.made

    @property
    def value(self) -> Float[Array, " count"]:
        """Mean of the task over prompts."""
        return self.per_prompt.mean(1)

    @property
    def clean(self) -> float:
        """The task of the undisturbed model."""
        return float(self.per_prompt[0].mean())

    @property
    def n_clusters(self) -> int:
        """The number of clusters that the prompts make up; without labels that of prompts."""
        return cluster_count(self.per_prompt.shape[1], self.clusters)

    @property
    def random(self) -> Float[Array, "draw count"]:
        """Mean of the task over prompts for each random order."""
        return self.random_per_prompt.mean(2)

    def bounds(self, level: float = 0.95) -> Float[Array, "count 2"]:
        """Confidence interval over clusters of prompts at each count, by t quantiles; NaN for one
        cluster.
        """
        if self.n_clusters < 2:
            return np.full((len(self.counts), 2), math.nan)
        errors = [(standard_error(self.per_prompt, self.clusters), self.n_clusters - 1)]
        return around(self.value, errors, level)

    def band(self, level: float = 0.95) -> Float[Array, "count 2"]:
        """Where the middle `level` of random orders lie at each count; NaN without any."""
        if not len(self.random):
            return np.full((len(self.counts), 2), math.nan)
        return percentile_interval(self.random, tails_of(level), axis=0).T

    @cached_property
    def area(self) -> Measured:
        """By how much the ranking beats random orders, on average over the share removed.

        The area between the curve and the mean of the random orders over the share of players
        removed (0 to the last count's share, trapezoids), divided by that share: a mean gap in the
        task's unit. Positive is good for the ranking: with "least-first" the task stays better
        in random orders, with "most-first" it gets worse sooner. The interval is over
        prompts and random orders, by t quantiles, for the ranking as it is: one that was made on
        these very prompts flatters itself; see `held_out_area`.

        Raises:
            OptionError: the curve was made without random orders.
        """
        return self._area(self.per_prompt)

    @cached_property
    def held_out_area(self) -> Measured | None:
        """`area` of prompts that the ranking was not made on; None without halves.

        Each half of the prompts is judged by the order of the other. The interval is that of the
        whole loop: prompts are drawn anew, split, ranked and judged; without loops both rankings
        are taken as given.

        Raises:
            OptionError: the curve was made without random orders.
        """
        if self.held_out_per_prompt is None:
            return None
        found = self._area(self.held_out_per_prompt)
        if not self.loops:
            return found
        loops = [self._sign * x for x in self.loops]
        low, high = loop_interval(found.value, loops, self.n_clusters)
        return Measured(found.value, low, high)

    @property
    def _sign(self) -> int:
        """Turns a gap to random orders into one that is positive where the ranking is good."""
        return 1 if self.higher_is_better == (self.order == "least-first") else -1

    def _area(self, per_prompt: Float[Array, "count prompt"]) -> Measured:
        if not self._whole:
            raise OptionError("area needs the whole curve, and these are some of its counts only")
        if not len(self.random):
            raise OptionError("area needs random orders to compare with; set n_random")
        sign = self._sign
        share = self.counts / self.counts[-1]
        own = sign * np.trapezoid(per_prompt, share, axis=0)  # [prompt]
        other = sign * np.trapezoid(self.random_per_prompt, share, axis=1)  # [draw, prompt]
        value = float(own.mean() - other.mean())
        if self.n_clusters < 2:
            return Measured(value, math.nan, math.nan)
        over_prompts = float(standard_error((own - other.mean(0))[None], self.clusters)[0])
        over_orders = float(standard_error(other.mean(1)[None])[0])
        errors = [(over_prompts, self.n_clusters - 1.0), (over_orders, len(other) - 1.0)]
        low, high = around(np.array([value]), errors)[0].tolist()
        return Measured(value, low, high)

    def n_free(self, tolerance: float, *, held_out: bool = False) -> int:
        """How many players go before the task worsens by more than `tolerance`, in its unit.

        The largest measured count up to which the mean over prompts never is worse than that of
        the undisturbed model by more than `tolerance`. A later recovery does not count. With
            `held_out`, of prompts that the ranking was not made on.

        Raises:
            OptionError: a tolerance that is negative or not finite, or nothing is held out.
        """
        if held_out and self.held_out_per_prompt is None:
            raise OptionError(f"{self.name}: there is no held-out half; see `made['ranked_on']`")
        if not (math.isfinite(tolerance) and tolerance >= 0):
            raise OptionError(f"tolerance={tolerance}; it is a worsening of the task, 0 or more")
        sign = 1 if self.higher_is_better else -1
        value = self.value
        if held_out and self.held_out_per_prompt is not None:
            value = self.held_out_per_prompt.mean(1)
        worse = sign * (self.clean - value) > tolerance
        first = int(np.argmax(worse)) if worse.any() else len(worse)
        return int(self.counts[first - 1])

    @property
    def _whole(self) -> bool:
        """False where `top` has left out counts."""
        return (
            len(self.counts) > 0 and self.counts[0] == 0 and bool(np.all(np.diff(self.counts) > 0))
        )

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": self.name, "unit": self.unit}

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        return super()._completed(rows.assign(sem=standard_error(self.per_prompt, self.clusters)))

    def _take(self, rows: Sequence[int]) -> Self:
        part = super()._take(rows)
        part = replace(part, random_per_prompt=self.random_per_prompt[:, list(rows)])
        object.__setattr__(part, "_asked", self._asked)
        return part

    def _rows(self) -> pd.DataFrame:
        """One row per count: who went last, the task with its interval, held out, and random."""
        import pandas as pd

        interval, band = self.bounds(), self.band()
        none = np.full(len(self.counts), math.nan)
        return pd.DataFrame(
            {
                "n_removed": self.counts,
                "share_removed": self.counts / self.n_players,
                "last_removed": ["" if c == 0 else self.removed[c - 1] for c in self.counts],
                "value": self.value,
                "low": interval[:, 0],
                "high": interval[:, 1],
                "held_out": none if (x := self.held_out_per_prompt) is None else x.mean(1),
                "random_mean": self.random.mean(0) if len(self.random) else none,
                "random_low": band[:, 0],
                "random_high": band[:, 1],
                "n_prompts": self.per_prompt.shape[1],
                "n_clusters": self.n_clusters,
            }
        )

    def plot(self, k: int = 20) -> go.Figure:
        """The curve with its interval, the random band, and the undisturbed model's value."""
        if not self._whole:
            return super().plot()
        return behind("PruningCurve.plot")([self])

    def save(self, path: str | os.PathLike) -> tuple[Path, ...]:
        """Write one file in the format of its suffix, or pruning.csv, .json and .html in a folder.

        Raises:
            UnknownName: another suffix than those of `Result.save`.
            StoreError: the folder or disk refuses.
        """
        if Path(path).suffix and not Path(path).is_dir():
            super().save(path)
            return (Path(path),)
        return self._save_all(Path(path))

    def _save_all(self, folder: Path) -> tuple[Path, Path, Path]:
        from interp.draw.page import page

        paths = folder / "pruning.csv", folder / "pruning.json", folder / "pruning.html"
        frame = self.wide()
        write_atomically(paths[0], frame.to_csv(index=False, lineterminator="\n").encode())
        write_atomically(paths[1], self.to_json())
        title = f"Pruning {self.made.get('model_id', '')}: {self.made.get('task', '')}"
        parts = [("In numbers", self.summary, frame)]
        content = page(title, self.plot(), parts, self.made, file_name="pruning")
        write_atomically(paths[2], content)
        return paths

    def to_json(self) -> bytes:
        """All values per prompt and how they were made, as one JSON document; see `read`."""
        from interp.core.json_document import json_document

        # areas are made anew
        told = {k: v for k, v in vars(self).items() if k not in ("area", "held_out_area", "_asked")}
        if self.clusters is None:
            told.pop("clusters")
        return json_document({"format": _FORMAT} | told)

    @classmethod
    def read(cls, path: str | os.PathLike) -> PruningCurve:
        """Read the `pruning.json` that `save` wrote, or the folder that holds it.

        Raises:
            StoreError: there is none, or it is something else.
        """
        path = Path(path)
        path = path / "pruning.json" if path.is_dir() else path
        content = read_bytes(path)
        try:
            told = json.loads(content)
            if told.pop("format") not in _READS:
                raise ValueError(f"its 'format' is not '{_FORMAT}'")
            n_prompts = len(told["per_prompt"][0])
            shape = (-1, len(told["counts"]), n_prompts)
            drawn = np.array(told.pop("random_per_prompt"), dtype=np.float64)
            apart = told.pop("held_out_per_prompt", None)
            shared = told.pop("clusters", None)
            return cls(
                counts=np.array(told.pop("counts"), dtype=np.int64),
                removed=tuple(told.pop("removed")),
                per_prompt=np.array(told.pop("per_prompt"), dtype=np.float64),
                random_per_prompt=drawn.reshape(shape),
                held_out_per_prompt=None if apart is None else np.array(apart, dtype=np.float64),
                loops=tuple(told.pop("loops", ())),
                clusters=None if shared is None else tuple(shared),
                **told,
            )
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise StoreError(f"{path} is no pruning curve, or is damaged: {error}") from error

    def __repr__(self) -> str:
        return f"PruningCurve({self.summary})"

    @property
    def summary(self) -> str:
        """The curve in one line."""
        if not self._whole:
            values = ", ".join(
                f"{c}: {v:.3g}" for c, v in zip(self.counts, self.value, strict=True)
            )
            return f"{self.name}, {self.order}, {self.unit} by number removed: {values}"
        who = self.made.get("players", "players")
        told = (
            f"{self.name}, {self.order}: {self.counts[-1]} of {self.n_players} {who} removed, "
            f"{self.clean:.3g} to {self.value[-1]:.3g} {self.unit}"
        )
        if len(self.random):
            told += f"; better than random orders by {self.advantage}"
        return told

    @property
    def advantage(self) -> str:
        """The advantage over random orders in words, with the prompts it was measured on."""
        if self.held_out_area is not None:
            return (
                f"{self.held_out_area} on held-out prompts, {self.area} on those it was ranked on"
            )
        where = {
            "these prompts": ", on the prompts it was ranked on, which flatters it",
            "other prompts": ", on prompts it was not ranked on",
        }.get(self.made.get("ranked_on", ""), "")
        return f"{self.area} on average{where}"

    def _repr_html_(self) -> str:
        from interp.draw.page import html_table, text

        return f"<p>{text(self.summary)}</p>{html_table(self.wide())}"
