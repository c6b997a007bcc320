"""Merging of tables of several runs: models are distinguished by their weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interp.core.columns import row_pairs
from interp.core.table import HeadTable

_SHOWN = 8  # characters of a hash


def merged(
    tables: Iterable[HeadTable], lead: HeadTable | None = None
) -> tuple[HeadTable, list[str]]:
    """Merge all rows in order of first appearance; later tables replace the rows of earlier ones.

    Models of one name with different weights keep their rows, each under `NAME@HASH`.
    """
    parts, notes = distinguished([*tables, *([] if lead is None else [lead])])
    rows: dict[tuple[str, str], HeadTable] = {}
    for part in parts:
        for key, about in part.provenance.items():
            metric_rows = part.where(model=key[0], metric=key[1])
            if key in rows and rows[key] != metric_rows:
                notes.append(
                    f"{key[1]} of {key[0]} is shown with its latest settings, which differ from"
                    f" an earlier result in {_differing(rows[key].provenance[key], about)}"
                )
            rows[key] = metric_rows
    ahead = parts[-1].provenance if lead is not None else {}
    order = [*ahead, *(key for key in rows if key not in ahead)]
    return HeadTable.concat([rows[key] for key in order]), list(dict.fromkeys(notes))


def distinguished(tables: Iterable[HeadTable]) -> tuple[list[HeadTable], list[str]]:
    """Rename models of one name with different weights; return the tables and a note for each."""
    tables = list(tables)
    weights: dict[str, dict[str, None]] = {}
    for table in tables:
        for (model, _), about in table.provenance.items():
            weights.setdefault(model, {})[_weights(about)] = None
    several = {model: hashes for model, hashes in weights.items() if len(hashes) > 1}
    notes = [
        f"{len(hashes)} models with different weights are called {model}; they are shown as"
        f" {', '.join(_named(model, h) for h in hashes)}"
        for model, hashes in several.items()
    ]
    return [_apart(table, several) if several else table for table in tables], notes


def in_metric_order(table: HeadTable, metrics: Sequence[str]) -> HeadTable:
    """Return the rows by name of the model, with numbers in their order, and by metric."""
    import numpy as np

    frame = table.wide()
    place = {name: at for at, name in enumerate(metrics)}

    def key(pair: tuple[str, str]) -> tuple[Any, ...]:
        model, metric = pair
        name = re.split(r"[:\[ ]", metric, maxsplit=1)[0]
        parts = re.split(r"(\d+)", model)
        natural = [(int(x), "") if x.isdecimal() else (-1, x) for x in parts]
        return natural, model, place.get(name, len(place)), metric

    pairs = row_pairs(frame)
    rank = {pair: at for at, pair in enumerate(sorted(pairs, key=key))}
    group = frame.groupby(["model", "metric"], sort=False).ngroup().to_numpy()
    rows = np.argsort(np.array([rank[pair] for pair in pairs], dtype=int)[group], kind="stable")
    if bool((rows == np.arange(len(rows))).all()):
        return table
    ordered_table = HeadTable(frame.iloc[rows], table.provenance)
    return ordered_table.with_prompt_values(table.prompt_values)


def renamed(table: HeadTable, names: Mapping[str, str]) -> HeadTable:
    """Return the rows with other model names."""
    frame = table.to_pandas()
    frame["model"] = [names.get(name, name) for name in frame["model"]]
    provenance = {
        (names.get(m, m), metric): about for (m, metric), about in table.provenance.items()
    }
    values = {(names.get(m, m), metric): x for (m, metric), x in table.prompt_values.items()}
    return HeadTable(frame, provenance).with_prompt_values(values)


def _apart(table: HeadTable, several: Mapping[str, Any]) -> HeadTable:
    parts = []
    for (model, metric), about in table.provenance.items():
        rows = table.where(model=model, metric=metric)
        new = _named(model, _weights(about)) if model in several else model
        parts.append(renamed(rows, {model: new}))
    return HeadTable.concat(parts)


def _named(model: str, weights: str) -> str:
    return f"{model}@{weights[:_SHOWN] or 'unknown'}"


def _weights(made: Mapping[str, Any]) -> str:
    return str(made.get("content_hash") or "")


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    fields = sorted(k for k in {*a, *b} if a.get(k) != b.get(k))
    return ", ".join(fields) or "its config or code"
