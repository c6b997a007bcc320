"""First heads of each metric in stored results, with the effective number of their prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.table import HeadTable

HEADS = ["model", "metric", "stack", "layer", "head"]
SHOWN = ["score", "sem", "low", "high", "why_no_interval", "null", "p", "n", "clusters"]


def first_heads(table: HeadTable, top: int, by: str = "end") -> pd.DataFrame:
    """Return the first heads of each metric and model, with the effective number of prompts."""
    from interp.core.prompt_values import effective_numbers

    rows = _first(table, top, by)
    number = effective_numbers(_values_of(table, rows))
    number = number.astype({name: rows[name].dtype for name in HEADS})
    merged = rows.merge(number[[*HEADS, "n_effective"]], on=HEADS, how="left")
    left_out = [name for name in merged.columns if name not in (*HEADS, *SHOWN, "n_effective")]
    left_out += ["stack"] if len(table.stacks) == 1 else []
    return merged.drop(columns=left_out)


def first_heads_by_cluster(table: HeadTable, top: int, by: str = "end") -> pd.DataFrame:
    """Get the scores of the first heads on each cluster of dependent prompts; see `first_heads`."""
    from interp.core.prompt_values import by_cluster

    frame = by_cluster(_values_of(table, _first(table, top, by)))
    return frame.drop(columns=["weights", "result"])


def _first(table: HeadTable, top: int, by: str) -> pd.DataFrame:
    parts = [table.where(model=model).top(top, by=by) for model in table.models]
    return type(table).concat(parts).to_pandas()


def _values_of(table: HeadTable, rows: pd.DataFrame) -> Any:
    """Return the values per prompt of the heads in some rows."""
    import pandas as pd

    values = table.prompts_to_pandas()
    asked: Any = rows[HEADS].astype(str)
    there: Any = values[HEADS].astype(str)
    return values.loc[pd.MultiIndex.from_frame(there).isin(pd.MultiIndex.from_frame(asked))]
