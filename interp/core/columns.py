"""Columns and rows of a table of head scores: types, values and text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError
from interp.core.long_rows import t_bounds
from interp.core.ties import without_rounding

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


# All file formats hold the columns in this order.
COLUMNS: dict[str, type] = {
    "model": str,
    "stack": str,
    "layer": int,
    "head": int,
    "kv_head": int,
    "metric": str,
    "score": float,
    "sem": float,
    "low": float,  # of the 95 % interval of the score
    "high": float,
    "why_no_interval": str,  # "" where there is one, or no error to make it of
    "n": int,
    "clusters": int,
    "null": float,
    "null_sem": float,
    "null_sd": float,
    "p": float,
    "unit": str,
    "kind": str,  # of the layer's attention, such as "softmax"; "unknown" where none is stated
}
# may be left out: the interval is then one of t
STATED = ("low", "high", "why_no_interval")
KEY = ["model", "stack", "layer", "head", "metric"]  # unique in each row

# Provenance of each (model, metric), as plain JSON data.
Provenance = dict[tuple[str, str], dict[str, Any]]


def checked_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Copy a frame with exact columns, types and row index; OptionError for impossible scores."""
    import numpy as np
    import pandas as pd

    frame = frame.assign(**{x: _DEFAULTS[x] for x in STATED if x not in frame.columns})
    wrong = sorted(set(COLUMNS) ^ set(frame.columns))
    if wrong:
        state = [f"{name} ({'missing' if name in COLUMNS else 'unknown'})" for name in wrong]
        raise OptionError(f"a table of head scores has other columns: {', '.join(state)}")
    # plain arrays: each step on a column of pandas costs as much as all steps on a short array
    typed = {name: _typed(frame[name], name, kind) for name, kind in COLUMNS.items()}
    for name in ("layer", "head", "kv_head", "n", "clusters"):
        _refuse(typed, typed[name] < 0, f"{name} is below 0")
    _refuse(typed, (typed["p"] < 0) | (typed["p"] > 1), "p is not a probability")
    for name in ("sem", "null_sem", "null_sd"):
        value = typed[name]
        _refuse(typed, (value < 0) | (value == math.inf), f"{name} is not a standard error")
    score, scored = typed["score"], typed["n"] > 0
    none = np.isnan(score)
    _refuse(typed, np.isinf(score), "the score is infinite")
    _refuse(typed, none & scored, "the score is NaN although n > 0; give a number, or n = 0")
    _refuse(typed, ~none & ~scored, "there is a score although n is 0; give n, or NaN as the score")
    _refuse(typed, typed["clusters"] > typed["n"], "there are more clusters than prompts")
    checked: Any = pd.DataFrame(typed, copy=False)
    _refuse(typed, checked.duplicated(subset=KEY).to_numpy(), "the row is repeated")
    low, high = typed["low"], typed["high"]
    stated = ~np.isnan(low) | ~np.isnan(high)
    why = np.asarray(typed["why_no_interval"] != "", dtype=bool)
    _refuse(typed, stated & why, "there is an interval, and a reason for none")
    outside = ~((low <= score) & (score <= high))
    _refuse(typed, stated & outside, "the interval does not hold the score")
    unstated = ~stated & ~why
    if unstated.any():
        bounds = np.stack([low, high], -1)
        bounds[unstated] = t_bounds(checked[unstated], 0.95)
        checked["low"], checked["high"] = bounds.T
    return checked


def checked_provenance(
    frame: pd.DataFrame, provenance: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Provenance:
    """Return a JSON copy of the provenance, one entry per (model, metric), else OptionError."""
    pairs = row_pairs(frame)
    for key in [*pairs, *provenance]:
        if key not in provenance or key not in pairs:
            state = "no provenance for rows" if key not in provenance else "provenance but no row"
            raise OptionError(f"{state} of {key}; it is keyed by (model, metric)")
    checked = {}
    for key in pairs:
        try:
            # Through JSON, so that a table read back from a file equals the one written.
            checked[key] = json.loads(json.dumps(dict(provenance[key]), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise OptionError(f"provenance of {key} is not plain JSON data: {error}") from error
    return checked


def row_pairs(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Return each (model, metric) of the rows, in order of appearance."""
    distinct = frame[["model", "metric"]].drop_duplicates()
    return list(zip(distinct["model"], distinct["metric"], strict=True))


def per_head(name: str, value: Any, n_heads: int) -> list:
    """Expand one value to all heads, or check one per head; OptionError for another number."""
    if COLUMNS[name] is str and isinstance(value, str):
        return [_text(name, value)] * n_heads
    if isinstance(value, (int, float)):
        return [value] * n_heads
    array = as_array(value)
    if array.ndim == 0:
        return [array.item()] * n_heads
    if array.shape != (n_heads,):
        raise OptionError(f"{name} has shape {array.shape} where {n_heads} heads have a score")
    return array.tolist()


def as_array(value: Any) -> np.ndarray:
    """Convert a number, list, array or tensor (any device, dtype or grad) to a numpy array."""
    import numpy as np

    if hasattr(value, "detach"):  # a tensor, recognised without importing torch
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    return np.asarray(value)


def prompt_counts(n: int, clusters: int) -> str:
    """Return the number of prompts behind a mean, and of clusters where those are fewer."""
    return str(n) if clusters == n else f"{n} in {clusters}"


def only(kind: str, value: str | None, known: Iterable[str]) -> str:
    """Return the value, or the only known one; OptionError when several are known."""
    known = list(known)
    if value is None and len(known) != 1:
        raise OptionError(f"the table has {len(known)} {kind}s; name one: {', '.join(known)}")
    return known[0] if value is None else value


def score_text(value: float) -> str:
    """Format a score with three decimals, or three significant digits where those say more."""
    if math.isnan(value):
        return "none"
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e3 else f"{value:.3g}"


def with_error(score: float, sem: float, scale: float = 0.0) -> str:
    """Format a score and its error as `0.912 ± 0.004`; without an error where it has none.

    What is only rounding beside the score, or beside scores of size `scale`, is 0.
    """
    scale = max(abs(score), scale)
    text = score_text(without_rounding(score, scale))
    return text if math.isnan(sem) else f"{text} ± {without_rounding(sem, scale):.2g}"


def _typed(series: Any, name: str, kind: type) -> Any:
    """Return the values of a column as an array of exactly its type, which is a copy."""
    import numpy as np
    from pandas.api import types

    if kind is str:
        for text in series.unique():
            _text(name, text)
        return series.astype("str").array
    if not len(series):
        return np.empty(0, "int64" if kind is int else "float64")
    if kind is int and series.isna().any():
        raise OptionError(f"{name} must be a whole number in every row; some are missing")
    fits = types.is_integer_dtype if kind is int else types.is_numeric_dtype
    if not fits(series) or types.is_bool_dtype(series) or types.is_complex_dtype(series):
        needed = "whole numbers" if kind is int else "numbers"
        raise OptionError(f"{name} holds {needed}, not {series.dtype} such as {series.iloc[0]!r}")
    if kind is int:
        if series.max() > np.iinfo(np.int64).max:
            raise OptionError(f"{name} is too large: {series.max()}")
        return series.to_numpy(dtype="int64", copy=True)
    values = series.to_numpy(dtype="float64", na_value=np.nan, copy=True)
    # one form of NaN: its payload bits have no meaning and CSV drops them
    values[np.isnan(values)] = np.nan
    return values


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise OptionError(f"{name} must be text, not {value!r}")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise OptionError(
            f"{name} {value!r} is not valid Unicode, so it cannot be written to a file"
        )
    return value


def _refuse(typed: Mapping[str, Any], bad: np.ndarray, why: str) -> None:
    if bad.any():
        model, stack, layer, head, metric = (typed[name][bad.argmax()] for name in KEY)
        place = f"{metric!r} of {model!r} {stack} L{layer}H{head}"
        raise OptionError(f"{place}: {why} ({int(bad.sum())} such rows)")


_DEFAULTS = {
    "stack": "decoder",
    "n": 1,
    "unit": "",
    "kind": "unknown",
    "why_no_interval": "",
} | dict.fromkeys(("sem", "low", "high", "null", "null_sem", "null_sd", "p"), math.nan)


def rows_of_records(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Spread records over their heads, one row per head; see `HeadTable.from_records`."""
    import numpy as np
    import pandas as pd

    columns: dict[str, list] = {name: [] for name in COLUMNS}
    for record in records:
        unknown = set(record) - set(COLUMNS) - {"n_kv_heads"}
        missing = {"model", "layer", "metric", "score"} - set(record)
        if unknown or missing:
            wrong = f"unknown {sorted(unknown)}" if unknown else f"missing {sorted(missing)}"
            raise OptionError(f"a record of head scores has fields {wrong}; see HeadTable")
        row = _DEFAULTS | {name: x for name, x in record.items() if x is not None}
        score = as_array(row["score"])
        if score.ndim > 1 or (score.ndim == 0 and "head" not in row):
            raise OptionError("the score of a record is a number with a head, or a [head] array")
        heads = row.setdefault("head", np.arange(score.size))
        n_kv_heads = row.pop("n_kv_heads", None)
        if n_kv_heads is not None:
            if "head" in record or n_kv_heads < 1 or score.size % n_kv_heads:
                raise OptionError(f"{score.size} heads cannot share {n_kv_heads} kv heads")
            row["kv_head"] = heads // (score.size // n_kv_heads)
        row.setdefault("kv_head", heads)
        row.setdefault("clusters", row["n"])
        for name in COLUMNS:
            columns[name] += per_head(name, row[name], score.size)
    return pd.DataFrame(columns)


def records_of_scores(
    score: Any,
    *,
    model: str,
    metric: str,
    stack: str,
    n_kv_heads: int | None,
    columns: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Make one record per layer of an array of scores; see `HeadTable.from_scores`."""
    records = []
    for layer, row in enumerate(score):
        if as_array(row).ndim != 1:
            raise OptionError("score must be a [layer, head] array, or one [head] array per layer")
        record = {"model": model, "metric": metric, "stack": stack, "layer": layer}
        record |= {"score": row, "n_kv_heads": n_kv_heads}
        for name, value in columns.items():
            per_layer = not isinstance(value, str) and (
                isinstance(value, Sequence) or getattr(value, "ndim", 0) > 0
            )
            if per_layer and len(value) != len(score):
                raise OptionError(f"{name} is for {len(value)} layers, score for {len(score)}")
            record[name] = value[layer] if per_layer else value
        records.append(record)
    return records


def joined(
    parts: Sequence[tuple[pd.DataFrame, Provenance]],
) -> tuple[pd.DataFrame, Provenance]:
    """Concatenate rows and provenance of several tables, in order."""
    import pandas as pd

    provenance: Provenance = {}
    for _, stated in parts:
        for key, about in stated.items():
            if provenance.setdefault(key, about) != about:
                other = provenance[key]
                wrong = sorted(k for k in about | other if about.get(k) != other.get(k))
                raise OptionError(
                    f"two tables of {key[1]!r} on {key[0]!r} differ in {', '.join(wrong)};"
                    " keep them apart, or rename the metric of one of them"
                )
    frames = [frame for frame, _ in parts if len(frame)]
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*COLUMNS])
    return frame, provenance


def with_noun(n: int, what: str) -> str:
    """Format a number with its noun, such as "1 sentence" or "2,001 sentences"."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"
