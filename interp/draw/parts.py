"""Rows of results as plain data, and the names and ids under which the atlas shows them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


ALL_EQUAL = ("metric", "stack")
"""Columns that a table leaves out where its title says them."""


@dataclass
class FoundPart:
    """A result as a part of the atlas, with the model that it belongs to.

    Args:
        part: the part, whose `id` is set when all parts are known.
        model: name of the model in the result.
        weights: content hash of the model, if the result states it.
        notes: text of the link from a head's card, by the head's label; other heads of the part
            link to its title.
        by_kv: the same by stack, layer and key-value head.
    """

    part: Any
    model: str
    weights: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    by_kv: Mapping[tuple[str, int, int], str] = field(default_factory=dict)

    def note_query_heads(self, model: Mapping[str, Any]) -> None:
        """Give the notes on key-value heads to the query heads that share them."""
        names = [stack["name"] for stack in model["stacks"]]
        for place in model["heads"] if self.by_kv else ():
            kv = place["head"] if place["kv_head"] is None else place["kv_head"]
            note = self.by_kv.get((names[place["stack"]], place["layer"], kv))
            if note is not None:
                self.notes[place["label"]] = note


def result_part(
    found: Any,
    kind: str,
    title: str,
    text: str,
    frame: Any = None,
    *,
    heads: Iterable[str] = (),
    figure: Mapping[str, Any] | None = None,
    notes: Mapping[str, str] | None = None,
    by_kv: Mapping[tuple[str, int, int], str] | None = None,
    drop: Sequence[str] = (),
) -> FoundPart:
    """Return the part of a result: a sentence, and its rows without columns that say nothing."""
    rows = found.to_pandas() if frame is None else frame
    same = [name for name in ("stack", "metric") if name in rows and rows[name].nunique() == 1]
    provenance = found.provenance
    part = {"id": "", "kind": kind, "title": title, "text": text, "heads": [*heads]}
    part |= {**frame_rows(rows, ("model", *same, *drop)), "provenance": made_of(provenance)}
    part |= {} if figure is None else {"figure": figure}
    name = str(provenance.get("model_id") or "")
    return FoundPart(part, name, stated_weights(provenance), dict(notes or {}), by_kv or {})


def kv_place(row: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return the place of a row's key-value head, as `FoundPart.by_kv` names it."""
    return str(row["stack"]), int(row["layer"]), int(row["kv_head"])


def plain_value(value: Any) -> Any:
    """Return a value as plain JSON data: None for a number that does not exist."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain_value(v) for k, v in value.items()}
    if hasattr(value, "tolist"):
        return plain_value(value.tolist())
    if isinstance(value, (list, tuple, set, range)):
        return [plain_value(v) for v in value]
    return str(value)


def frame_rows(frame: pd.DataFrame, drop: Sequence[str] = ()) -> dict[str, Any]:
    """Return the columns and rows of a frame for a part, without columns that hold nothing."""
    columns = [
        name
        for name in frame.columns
        if name not in drop and bool((frame[name].notna() & (frame[name] != "")).any())
    ]
    rows = [
        [plain_value(x) for x in row] for row in frame[columns].itertuples(index=False, name=None)
    ]
    return {"columns": [str(name) for name in columns], "rows": rows}


def rows_of_dicts(rows: Sequence[Mapping[str, Any]], drop: Sequence[str] = ()) -> dict[str, Any]:
    """Return the columns and rows of mappings for a part."""
    import pandas as pd

    return frame_rows(pd.DataFrame(list(rows)), drop)


def stated_weights(made: Mapping[str, Any]) -> str:
    """Return the content hash that a provenance states, or nothing."""
    return str(made.get("content_hash") or "")


def anchor(text: str, taken: set[str]) -> str:
    """Return a name for links that is not taken yet, and take it."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "x"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    taken.add(name)
    return name


def shorter(value: Any) -> str:
    """Format a number for a sentence with three significant digits; "none" if there is none."""
    value = plain_value(value)
    return "none" if value is None else f"{value:.3g}"


def between(low: Any, high: Any) -> str:
    """Format an interval for a sentence, with a space before it; nothing if there is none."""
    low, high = plain_value(low), plain_value(high)
    return "" if low is None or high is None else f" [{low:.3g}, {high:.3g}]"


def made_of(made: Mapping[str, Any]) -> dict[str, Any]:
    """Return a provenance as plain data, without the texts of all prompts."""
    return {k: plain_value(v) for k, v in made.items() if k not in ("task_detail", "pairs")}
