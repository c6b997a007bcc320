"""Columns of learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

CURVE_FACTS = {"metric": "explained_variance", "unit": "share of the variance of a batch"}


def curve_columns(curve: Mapping[str, Sequence[float]], n: int) -> dict[str, Any]:
    """Return the columns of a curve, whose score is the explained variance of each step's batch."""
    columns: dict[str, Any] = {name: list(values) for name, values in curve.items()}
    columns["score"] = columns.pop("explained_variance")
    return columns | {"sem": np.nan, "n": n}
