"""Folder of `interp study trees`: trees.json, tables and a page of all its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.csv_rows import csv_text
from interp.core.files import write_atomically
from interp.core.json_document import json_document
from interp.report.trees import trees_page
from interp.syntax.pairs import pair_document
from interp.syntax.stored_searches import KeptTrees

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.syntax.result import TreeScores

WHOLE, RELATIONS, TREES, PAGE = "trees.json", "relations.csv", "trees.csv", "trees.html"


def write_trees(
    own: Sequence[TreeScores],
    checks: Mapping[str, ResultRows | str],
    folder: Path,
    stored: Path,
    *,
    command: str | None = None,
) -> tuple[list[str], int]:
    """Write results, then those of the other models in the folder."""
    import pandas as pd

    mine = {_weights(one) for one in own}
    store = KeptTrees(stored)
    trees = [*own, *(one for one in store.newest() if _weights(one) not in mine)]
    apart = _named_apart(trees)
    renamed = {
        new.model: checks[one.model]
        for one, new in zip(own, apart, strict=False)
        if one.model in checks
    }
    contents = {
        WHOLE: trees_document(apart, renamed),
        RELATIONS: _csv(pd.concat([one.wide() for one in apart])),
        TREES: _csv(pd.concat([one.trees_to_pandas() for one in apart])),
        PAGE: trees_page(apart, command=command, beside=[WHOLE, RELATIONS, TREES], pairs=renamed),
    }
    for name, content in contents.items():
        write_atomically(folder / name, content.encode())
    return [*contents], len(store.paths()) - len(apart)


def trees_document(found: Sequence[TreeScores], checks: Mapping[str, ResultRows | str]) -> str:
    """Return results with their minimal-pair checks, as JSON."""
    values: list[dict[str, Any]] = [
        one.to_dict() | ({"pairs": pair_document(checks[one.model])} if one.model in checks else {})
        for one in found
    ]
    return json_document(values, indent=1).decode()


def _weights(one: TreeScores) -> tuple[str, str]:
    return one.model, str(one.provenance.get("content_hash"))


def _named_apart(found: Sequence[TreeScores]) -> list[TreeScores]:
    """Give distinct names to models with the same name but other weights."""
    names = [model for model, _ in dict.fromkeys(map(_weights, found))]
    return [
        replace(one, model=f"{one.model}@{_weights(one)[1][:8]}")
        if names.count(one.model) > 1
        else one
        for one in found
    ]


def _csv(frame: Any) -> str:
    return csv_text(frame)
