"""Rows of a table of head scores from records and from arrays, and several tables as one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.core.columns import COLUMNS, Provenance, as_array, per_head
from interp.core.errors import OptionError

if TYPE_CHECKING:
    import pandas as pd

_DEFAULTS = {
    "stack": "decoder",
    "n": 1,
    "unit": "",
} | dict.fromkeys(("sem", "null", "null_sem", "null_sd", "p"), math.nan)


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
    """One record per layer of an array of scores; see `HeadTable.from_scores`."""
    records = []
    for layer, row in enumerate(score):
        if as_array(row).ndim != 1:
            raise OptionError("score is a [layer, head] array, or one [head] array per layer")
        record = {"model": model, "metric": metric, "stack": stack, "layer": layer}
        record |= {"score": row, "n_kv_heads": n_kv_heads}
        for name, value in columns.items():
            per_layer = name != "unit" and (
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
    """Put rows and provenance of several tables together, in order.

    Raises:
        OptionError: two tables say different things of how one metric of one model was made.
    """
    import pandas as pd

    provenance: Provenance = {}
    for _, told in parts:
        for key, made in told.items():
            if provenance.setdefault(key, made) != made:
                other = provenance[key]
                wrong = sorted(k for k in made | other if made.get(k) != other.get(k))
                raise OptionError(
                    f"two tables of {key[1]!r} on {key[0]!r} differ in {', '.join(wrong)};"
                    " keep them apart, or give one another metric label"
                )
    frames = [frame for frame, _ in parts if len(frame)]
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*COLUMNS])
    return frame, provenance
