"""Kind of sparse pattern of each head, from scores of the three margins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import OptionError

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.table import HeadTable

PREFIX = "minference_"


def minference_kinds(table: HeadTable, tolerance: float = 0.01) -> pd.DataFrame:
    """Return the pattern that keeps most of each head's attention, with its margin.

    Columns and diagonals can do what an A-shape does, at the price of estimating them at run time:
    a head whose A-shape keeps as much as the best pattern, up to the tolerance, is an A-shape.

    Args:
        table: scores of `minference_a_shape`, `minference_vertical_slash` and
            `minference_block_sparse` with the same options, from `interp.score`.
        tolerance: attention mass by which the A-shape may be behind.

    Returns:
        One row per head: model, stack, layer, head, kind, margin in attention mass over the better
        of the other two patterns, low and high of its 95 % interval, n prompts, and clear: True if
        the interval lies above 0 (of an A-shape, above minus the tolerance). A
        head without a score has kind "".

    Raises:
        OptionError: one of the three scores is missing.
    """
    import pandas as pd

    frame: Any = table.interval()
    of = frame["metric"].str.partition(":")[0]
    names = [PREFIX + kind for kind in ("a_shape", "vertical_slash", "block_sparse")]
    missing = [name for name in names if name not in set(of)]
    if missing:
        raise OptionError(
            f"the table has no {', '.join(missing)}; score all three: {', '.join(names)}"
        )
    where = [c for c in ("model", "stack", "layer", "head") if c in frame]
    rows = []
    for place, part in frame[of.isin(names)].groupby(where, sort=False):
        scores = part["score"].to_numpy(dtype=float)
        if np.isnan(scores).all():
            best, kind = part.iloc[0], ""
        else:
            kinds = [str(m).partition(":")[0].removeprefix(PREFIX) for m in part["metric"]]
            simple = kinds.index("a_shape")
            at = simple if scores[simple] >= -tolerance else int(np.nanargmax(scores))
            best, kind = part.iloc[at], kinds[at]
        row = dict(zip(where, place, strict=True)) | {"kind": kind, "margin": best["score"]}
        row |= {"low": best["low"], "high": best["high"], "n": best["n"]}
        least = -tolerance if kind == "a_shape" else 0.0
        rows.append(row | {"clear": bool(best["low"] > least)})
    return pd.DataFrame(rows)
