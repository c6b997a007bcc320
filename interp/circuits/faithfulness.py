"""Faithfulness of a circuit over its size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Float

from interp.circuits.result import Circuit
from interp.core.errors import OptionError
from interp.core.result import Result
from interp.core.standard_errors import standard_error

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Array = np.ndarray
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class SizeCurve(Result, ABC):
    """Values of a task with only the top heads or edges of a circuit active, over their number.

    The rows are sizes; the score is the task's value, its null the mean over random orders.
    """

    circuit: Circuit
    sizes: tuple[int, ...]
    full: Float[Array, " prompt"]
    empty: Float[Array, " prompt"]
    random: Float[Array, "draw size"]
    made: Mapping[str, Any]
    clusters: tuple[str, ...] | None
    unit: str
    partial: bool
    _things: ClassVar[str]
    _units = ("size",)
    _holds = (Circuit,)

    @property
    @abstractmethod
    def total(self) -> int:
        """Number of all heads or edges."""

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The model, the circuit's method, the pairs and the ablation."""
        return {"model_id": self.circuit.model} | dict(self.made)

    @property
    def faithfulness(self) -> Float[Array, " size"]:
        """Faithfulness: 0 with no heads (edges), 1 with all (Mueller et al. 2025, MIB)."""
        return faithful(self.per_prompt.mean(1), self.full.mean(), self.empty.mean())

    def as_mib(self) -> dict[str, float]:
        """Return CPR and CMD as the code of MIB integrates them: over its ten shares, from 0.001.

        They compare methods with those of the benchmark, and do not judge a circuit: one that lacks
        a part that the task needs can have a lower CMD than the whole, as it reaches a share of the
        behaviour with fewer heads or edges. A perfect circuit has a CPR of 0.999.

        Raises:
            OptionError: The curve has not the sizes of these shares.
        """
        at = [max(1, round(share * self.total)) for share in SHARES]
        if self.partial or not set(at) <= set(self.sizes):
            raise OptionError(
                f"MIB's shares are the sizes {at}, and this curve has {list(self.sizes)}; evaluate "
                "edges"
            )
        f = self.faithfulness[[self.sizes.index(size) for size in at]]
        heights = {"CPR": f, "CMD": np.abs(1 - f)}
        return {name: float(np.trapezoid(x, SHARES)) for name, x in heights.items()}

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": self.circuit.task, "unit": self.unit, "n": self.per_prompt.shape[1]}

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.rename(columns={self._things: "size"}).assign(
            score=self.per_prompt.mean(1),
            sem=standard_error(self.per_prompt, self.clusters),
            null=self.random.mean(0),
        )
        several = self.clusters is not None
        rows = rows.assign(clusters=len(set(self.clusters or ()))) if several else rows
        return super()._completed(rows)

    def _take(self, rows: Sequence[int]) -> Self:
        rows = list(rows)
        size_curve: Any = self
        part = replace(
            size_curve,
            sizes=tuple(self.sizes[row] for row in rows),
            per_prompt=self.per_prompt[rows],
            random=self.random[:, rows],
            partial=self.partial or rows != list(range(len(self.sizes))),
        )
        object.__setattr__(part, "_asked", self._asked)
        return part

    def plot(self, k: int = 20) -> go.Figure:
        """Plot faithfulness over the number of heads (edges), beside random orders."""
        from interp.draw.charts import curve

        if self.partial:
            return super().plot(k)
        title = f"{self.circuit.task}: the first {self._things} of {self.circuit.method}"
        return curve(self.wide(), self._things, title)

    def _listed(self) -> str:
        """List the value of each size."""
        values = zip(self.sizes, self.per_prompt.mean(1), strict=True)
        text = ", ".join(f"{size}: {value:.3g}" for size, value in values)
        return f"{self.circuit.task} by number of {self._things}: {text}"


def faithful(value: Array, full: float, empty: float) -> Array:
    """Scale a value to 0 with no heads and 1 with all heads."""
    return (value - empty) / (full - empty)
