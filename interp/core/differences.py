"""Differences between the scores of two results, paired over prompts or their clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from jaxtyping import Float

from interp.core.clusters import score_columns
from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import t_test_p
from interp.core.statistics import benjamini_hochberg, holm

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
_PAIR = "model", "metric"  # columns that may differ between two compared results


class Comparable(Protocol):
    """Interface of a result that can be compared."""

    per_prompt: Any
    provenance: Any
    _units: ClassVar[tuple[str, ...]]

    @property
    def _name(self) -> str: ...

    @property
    def why_no_per_prompt(self) -> str:
        """The reason for which `per_prompt` is None."""
        ...

    def to_pandas(self) -> pd.DataFrame:
        """Rows in the common columns."""
        ...


def differences(first: Comparable, second: Comparable) -> ResultRows:
    """Subtract the second result from the first, row by row; see `Result.compare`."""
    a, b = _values(first), _values(second)
    prompts = _prompts(first), _prompts(second)
    if None in prompts or prompts[0] != prompts[1]:
        why = "no hash of the prompts is known" if None in prompts else "their prompts differ"
        raise OptionError(
            f"cannot pair {first._name} and {second._name}: {why}; compute both "
            "on the same prompts to compare them"
        )
    if a.shape[1] != b.shape[1]:
        raise OptionError(
            f"cannot pair values of {a.shape[1]} prompts with those of {b.shape[1]}; compute both "
            "on the same prompts to compare them"
        )
    left, right = first.to_pandas(), second.to_pandas()
    keys = _keys(first, left, right)
    place = {key: row for row, key in enumerate(_named(right, keys))}
    pairs = [(i, place[key]) for i, key in enumerate(_named(left, keys)) if key in place]
    if not pairs:
        raise OptionError(
            f"cannot pair {first._name} and {second._name}: no row of one is "
            f"about the same {', '.join(keys) or 'thing'} as a row of the other"
        )
    rows = []
    for i, j in pairs:
        x, y = left.iloc[i], right.iloc[j]
        row = {name: _either(x[name], y[name]) for name in _PAIR if name not in keys}
        row |= {key: x[key] for key in keys} | {"unit": x["unit"]}
        rows.append(row | {"first": float(x["score"]), "second": float(y["score"])})
    provenance = {"first": first.provenance, "second": second.provenance}
    labels = getattr(first, "clusters", None)
    values = np.stack([a[i] - b[j] for i, j in pairs])
    return difference_rows(rows, values, labels, provenance)


def difference_rows(
    rows: Sequence[Mapping[str, Any]],
    per_prompt: Float[Array, "row prompt"],
    clusters: tuple[str, ...] | None,
    made: Mapping[str, Any],
) -> ResultRows:
    """Test the mean of each row of differences against 0, by a t test over clusters of prompts."""
    import pandas as pd

    means = score_columns(per_prompt, clusters)
    score, sem, number = (np.array(means[name]) for name in ("score", "sem", "clusters"))
    p = t_test_p(score, sem, number - 1)
    columns = pd.DataFrame(list(rows)).assign(
        score=score,
        sem=sem,
        null=0.0,
        p=p,
        n=means["n"],
        clusters=number,
        p_holm=holm(p),
        p_bh=benjamini_hochberg(p),
    )
    units = tuple(c for c in (rows[0] if rows else {}) if c not in ("unit", "first", "second"))
    return ResultRows(
        "Differences", columns, units, made, {}, per_prompt, clusters=clusters, by="abs"
    )


def _values(result: Any) -> Float[Array, "row prompt"]:
    if result.per_prompt is None:
        why = result.why_no_per_prompt
        raise OptionError(f"{result._name} has no values per prompt to pair: {why}")
    return np.asarray(result.per_prompt, dtype=float)


def _prompts(result: Any) -> str | None:
    """Return the hash of the prompts where all rows share one, else None."""
    about = result.provenance
    records = list(about.values()) if any(isinstance(k, tuple) for k in about) else [about]
    hashes = {x.get("prompts_hash") or x.get("task_hash") for x in records}
    return hashes.pop() if len(hashes) == 1 else None


def _keys(result: Any, left: pd.DataFrame, right: pd.DataFrame) -> list[str]:
    """Return the columns that identify the unit of analysis of a row in both results."""
    keys = [u for u in result._units if u in right.columns and u not in _PAIR]
    same = set(left["metric"]) == set(right["metric"])
    return keys + (["metric"] if same else [])


def _named(frame: pd.DataFrame, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    if not keys:
        return [()] * len(frame)
    return list(frame[list(keys)].itertuples(index=False, name=None))


def _either(x: Any, y: Any) -> str:
    return str(x) if x == y else f"{x} - {y}"


def differences_summary(found: ResultRows) -> str:
    """Return the number of rows and prompts, and of corrected p values below 0.05."""
    return (
        f"Differences of {len(found)} rows over {found.per_prompt.shape[1]} prompts: "
        f"{int((found.p_holm < 0.05).sum())} with a corrected p below 0.05"
    )


present("Differences", summary=differences_summary)
