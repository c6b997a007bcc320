"""Standard columns of the rows of every result, and selection of the first rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError, UnknownName
from interp.core.ties import ordered

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

STANDARD = ("model", "metric", "score", "sem", "low", "high", "null", "n", "unit")
"""Columns of the rows of every result, besides those that name the unit of analysis."""

_EMPTY = {"model": "", "metric": "", "unit": "", "n": 1}
_ORDERS = ("score", "lowest", "abs", "null")


def completed(
    frame: pd.DataFrame, units: Sequence[str], same_as: Mapping[str, str], facts: Mapping[str, Any]
) -> pd.DataFrame:
    """Add the missing columns of `STANDARD` to a frame and put the columns in order."""
    frame = frame.copy()
    for name in STANDARD:
        if name in frame.columns and name not in same_as:
            continue
        if name in same_as and (len(frame) or same_as[name] in frame.columns):
            frame[name] = frame[same_as[name]]
        else:
            frame[name] = facts.get(name, _EMPTY.get(name, math.nan))
    first = ["model", *(u for u in units if u != "metric"), *STANDARD[1:]]
    first = list(dict.fromkeys(first))
    return frame.reindex(columns=[*first, *(c for c in frame.columns if c not in first)])


def t_bounds(frame: pd.DataFrame, level: float) -> np.ndarray:
    """Compute the t interval of each row from score, sem and n (or clusters), `[row, 2]`."""
    import numpy as np

    from interp.core.intervals import half_width

    column = "clusters" if "clusters" in frame.columns else "n"
    score = frame["score"].to_numpy(float)
    df, sem = frame[column].to_numpy(float) - 1, frame["sem"].to_numpy(float)
    half = np.full(len(frame), math.nan)
    # one quantile for each number of clusters; huge errors may overflow to an infinite interval
    if not 0 < level < 1:
        half_width([(0.0, 1.0)], level)  # raises for an invalid level
    with np.errstate(over="ignore", invalid="ignore"):
        for one in np.unique(df[~np.isnan(sem) & (df > 0)]):
            mine = (df == one) & ~np.isnan(sem)
            half[mine] = half_width([(sem[mine], float(one))], level)
        return np.stack([score - half, score + half], -1)


def clusters_of_rows(per_prompt: Any, labels: Sequence[str]) -> Any:
    """Count the clusters of the prompts that have a value, in each row; all if none are known."""
    import numpy as np

    if per_prompt is None:
        return len(set(labels))
    there = ~np.isnan(np.asarray(per_prompt, dtype=float))
    return [len({label for label, x in zip(labels, row, strict=True) if x}) for row in there]


def first_rows(frame: pd.DataFrame, k: int, by: str) -> list[int]:
    """Return the indices of the first k rows; ties keep their order, NaN comes last."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if k < 0:
        raise OptionError(f"k={k} is not a number of rows to keep; give 0 or more")
    numbers = [
        str(c) for c in frame.columns if is_numeric_dtype(frame[c]) and not is_bool_dtype(frame[c])
    ]
    if by not in (*_ORDERS, *numbers):
        raise UnknownName("order", by, dict.fromkeys((*_ORDERS, *numbers)))
    score = frame["score"].astype(float)
    if by == "null":
        size = (score - frame["null"].astype(float).fillna(0.0)).abs()
    elif by in ("lowest", "abs"):
        size = -score if by == "lowest" else score.abs()
    else:
        size = frame[by].astype(float)
    return ordered(size)[:k]
