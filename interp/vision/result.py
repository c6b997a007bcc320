"""Scores of heads, tokens and other parts of a vision transformer, image by image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError
from interp.core.result import Result
from interp.core.standard_errors import standard_error
from interp.core.statistics import holm, sign_flip_ps
from interp.core.table import HeadTable

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class ImageScores(Result):
    """One score per part of a model and metric: the mean over images, beside its null.

    Args:
        parts: name of each row's part, such as L1H2, MLP 0 or a token.
        places: stack, layer and head of each row; layer or head is -1 where a row has none.
        metrics: metric of each row.
        units: unit of each row.
        per_prompt: the score on each image; NaN where it is not defined.
        null: the score of each row where there is nothing to find; NaN without a null.
        extra: further columns.
        notes: facts about the computation, such as the error of a decomposition.
        provenance: model, images and options.
    """

    parts: tuple[str, ...] = field(repr=False)
    places: tuple[tuple[str, int, int], ...] = field(repr=False)
    metrics: tuple[str, ...]
    units: tuple[str, ...]
    per_prompt: Float[Array, "row image"] = field(repr=False)
    null: Float[Array, " row"] = field(repr=False)
    extra: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)
    notes: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _units = ("part", "stack", "layer", "head")

    @property
    def score(self) -> Float[Array, " row"]:
        """Mean over the images on which a row is defined; NaN where it is defined on none."""
        known = ~np.isnan(self.per_prompt)
        values = np.where(known, self.per_prompt, 0.0)
        total = np.ascontiguousarray(values).sum(1)  # the order of the sum is that of a saved file
        return np.where(known.any(1), total / np.maximum(known.sum(1), 1), np.nan)

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        stack = [each for each, _, _ in self.places]
        layer = [each for _, each, _ in self.places]
        head = [each for _, _, each in self.places]
        known = ~np.isnan(self.per_prompt)
        sem = [
            float(standard_error(row[k][None])[0]) if k.sum() > 1 else np.nan
            for row, k in zip(self.per_prompt, known, strict=True)
        ]
        rows = {
            "part": list(self.parts),
            "stack": stack,
            "layer": _known(layer),
            "head": _known(head),
            "metric": list(self.metrics),
            "score": self.score,
            "sem": sem,
            "null": self.null,
            "n": known.sum(1),
            "unit": list(self.units),
        }
        return pd.DataFrame(rows | {name: list(x) for name, x in self.extra.items()})

    def _take(self, rows: Sequence[int]) -> ImageScores:
        import dataclasses

        index = list(rows)
        cut: dict[str, Any] = {
            name: tuple(getattr(self, name)[i] for i in index)
            for name in ("parts", "places", "metrics", "units")
        }
        cut |= {"per_prompt": self.per_prompt[index], "null": self.null[index]}
        cut["extra"] = {n: tuple(x[i] for i in index) for n, x in self.extra.items()}
        part = dataclasses.replace(self, **cut)
        object.__setattr__(part, "_asked", self._asked)
        return part

    @property
    def table(self) -> HeadTable:
        """The rows that are heads, as the table that the atlas and other analyses read.

        Raises:
            OptionError: no row is a head.
        """
        keys = ("model", "stack", "layer", "head", "metric", "score", "sem", "low", "high", "null")
        keys += ("n", "unit")
        records: list[dict[str, Any]] = [
            {k: row[k] for k in keys if not (isinstance(row[k], float) and np.isnan(row[k]))}
            | {"layer": layer, "head": head}
            for row, (_, layer, head) in zip(self, self.places, strict=True)
            if head >= 0 and row["n"] > 0
        ]
        if not records:
            raise OptionError("no row of this result is a head, so it has no table of heads")
        about = {(row["model"], row["metric"]): self.provenance for row in records}
        return HeadTable.from_records(records, about)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(self.metrics))
        shown = sorted(
            zip(self.parts, self.score, strict=True), key=lambda x: -abs(np.nan_to_num(x[1]))
        )[: self._asked or 3]
        best = ", ".join(f"{part} {x:.3g}" for part, x in shown)
        number = self.per_prompt.shape[1]
        return f"ImageScores({names}: {len(self)} rows over {number} images; largest {best})"


def paired_columns(
    metrics: Sequence[str], values: Float[Array, "row image"], null: Float[Array, "row image"]
) -> dict[str, tuple[float, ...]]:
    """Return columns `p` and `p_holm` of rows against their null on the same images.

    Random signs of the differences, two-sided; `p_holm` is corrected over the rows of a metric. An
    interval of the score that excludes the mean null is no such test: the null has an error too.
    """
    p = sign_flip_ps(values - null)
    return {"p": tuple(p.tolist()), "p_holm": tuple(holm(p, metrics).tolist())}


def _known(numbers: Sequence[int]) -> list[int | None]:
    """Return layers or heads, with None where a row has none."""
    return [None if x < 0 else x for x in numbers]


def head_places(sites: Sequence[Any]) -> tuple[tuple[str, int, int], ...]:
    """Return stack, layer and head of every head of some layers."""
    return tuple((s.stack, s.layer, h) for s in sites for h in range(s.n_heads))


def head_scores(
    sites: Sequence[Any],
    values: Mapping[tuple[str, str], Float[Array, "head image"]],
    provenance: Mapping[str, Any],
    *,
    null: Mapping[str, Float[Array, " head"] | float] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> ImageScores:
    """Build a result whose rows are heads, for one metric or several."""
    places = head_places(sites)
    labels = [f"L{layer}H{head}" for _, layer, head in places]
    null = null or {}
    return ImageScores(
        tuple(labels) * len(values),
        places * len(values),
        tuple(m for m, _ in values for _ in places),
        tuple(u for _, u in values for _ in places),
        np.concatenate([np.asarray(x, dtype=float) for x in values.values()]),
        np.concatenate(
            [np.broadcast_to(null.get(m, np.nan), len(places)) for m, _ in values]
        ).astype(float),
        notes=dict(notes or {}),
        provenance=provenance,
    )
