"""Order and comparison of numbers up to rounding: what rounding can turn is a tie.

Another processor adds in another order, so the last digits of a score differ between machines. Two
numbers closer than `RELATIVE` of their size plus `FLOOR` of the largest size beside them are tied:
they keep the order in which they are given, which is that of their names. Both tolerances lie above
what rounding in float32 moves (and what changing every weight by a relative 1e-6 moves), and below
the digits that are printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

RELATIVE = 2e-5  # of the numbers compared
FLOOR = 1e-5  # of the largest number beside them, or of `scale`

T = TypeVar("T")


def snapped(values: Any, scale: float | None = None) -> np.ndarray:
    """Return the numbers with tied ones made equal, each to the largest that it is tied with.

    A group of ties is never wider than the tolerance, so a chain of close numbers does not become
    one tie. NaN stays NaN; infinities are tied with their like only.
    """
    import numpy as np

    numbers = _numbers(values).copy()
    for row in numbers.reshape(-1, numbers.shape[-1]) if numbers.size else ():
        finite = np.isfinite(row)
        order = np.flatnonzero(finite)[np.argsort(-row[finite], kind="stable")]
        x = row[order]
        near = RELATIVE * np.abs(x) + FLOOR * max(scale or 0.0, np.abs(x).max(initial=0.0))
        # only runs of numbers whose neighbours are close are looked at one by one
        ends = np.flatnonzero(np.append(x[:-1] - x[1:] > near[:-1], np.True_)) + 1
        for start, end in zip(np.append(0, ends[:-1]), ends, strict=True):
            at = int(start)
            while end - at > 1:
                size = int((x[at] - x[at:end] <= near[at]).sum())
                x[at : at + size] = x[at]
                at += size
        row[order] = x
    return numbers


def _numbers(values: Any) -> np.ndarray:
    """Return numbers in float64, of a tensor on any device too."""
    import numpy as np

    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=float)


def ordered(values: Any, *, lowest: bool = False, scale: float | None = None) -> list[int]:
    """Return the indices of numbers, the largest first; ties keep their order, NaN comes last."""
    import numpy as np

    x = _numbers(values)
    return np.argsort(-snapped(-x if lowest else x, scale), kind="stable").tolist()


def ordered_by(
    items: Iterable[T],
    size: Callable[[T], float],
    *,
    lowest: bool = False,
    scale: float | None = None,
) -> list[T]:
    """Return the items by their size, the largest first; ties keep the given order."""
    items = list(items)
    order = ordered([size(item) for item in items], lowest=lowest, scale=scale)
    return [items[i] for i in order]


def largest(values: Any, *, scale: float | None = None) -> int:
    """Return the index of the largest number, of tied ones the first."""
    return ordered(values, scale=scale)[0]


def tied_with(values: Any, at: int, *, scale: float | None = None) -> list[int]:
    """Return the indices of the numbers that are tied with one of them, itself included."""
    import numpy as np

    x = snapped(values, scale)
    return np.flatnonzero(x == x[at]).tolist()


def reaches(value: Any, bound: Any, *, scale: Any = 0.0) -> Any:
    """Tell whether a number is at least a bound, up to rounding."""
    import numpy as np

    size = np.maximum(np.abs(value), np.abs(bound))
    near = RELATIVE * size + FLOOR * np.maximum(size, scale)
    return value >= bound - np.where(np.isfinite(near), near, 0.0)


def without_rounding(value: float, scale: float) -> float:
    """Return a number, or 0 where it is only the rounding of numbers of this size."""
    return 0.0 if reaches(-abs(value), 0.0, scale=scale) else value


def within(error: float, scale: float = 1.0) -> str:
    """Say how far two numbers of about a size differ: `up to rounding`, or `within 0.003`.

    The size of a rounding error differs between processors, so it is not printed.
    """
    return f"within {error:.1g}" if without_rounding(error, scale) else "up to rounding"


def either(names: Sequence[str], limit: int = 3) -> str:
    """Say a tie: `L1H0 or L2H0`, or `L1H0 or 5 others` where there are many."""
    if len(names) > limit:
        return f"{names[0]} or {len(names) - 1} others"
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def ranked(
    frame: pd.DataFrame, column: str, *, absolute: bool = False, lowest: bool = False
) -> pd.DataFrame:
    """Return the rows of a frame by one column, the largest first; ties keep the rows' order."""
    numbers = frame[column].to_numpy(float)
    return frame.iloc[ordered(abs(numbers) if absolute else numbers, lowest=lowest)]
