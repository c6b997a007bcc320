"""Values per prompt of the results in a folder, as one frame."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from interp.core.errors import UnknownName
from interp.core.prompt_values import read_values, values_file, values_to_pandas
from interp.core.store import Store

if TYPE_CHECKING:
    import pandas as pd


def read_prompt_values(
    folder: str | os.PathLike,
    *,
    model: str | Collection[str] | None = None,
    metric: str | Collection[str] | None = None,
    all_settings: bool = False,
) -> pd.DataFrame:
    """Read the values per prompt of the results in a folder, one row per head and prompt.

    Of several results for one model and metric (other prompts, seeds or versions) the most recently
    used one is read, as in the summary table.
    """
    store = Store(folder)
    paths = store.paths()
    for kind, asked, known in (
        ("model", model, {key.model for key in paths}),
        ("metric", metric, {key.metric for key in paths}),
    ):
        for name in _several(asked):
            if name not in known:
                raise UnknownName(kind, name, known)
    latest: dict[tuple[str, ...], Path] = {}
    for key in sorted(paths, key=lambda key: paths[key].stat().st_mtime_ns):
        if _is(key.model, model) and _is(key.metric, metric):
            name = (key.model, key.weights, key.metric, key.digest if all_settings else "")
            latest[name] = paths[key]
    found = [
        read_values(values_file(path), store.notes_of(path).get("values", ""))
        for path in latest.values()
        if values_file(path).exists()
    ]
    return values_to_pandas(found)


def _several(asked: str | Collection[str] | None) -> Collection[str]:
    return () if asked is None else ([asked] if isinstance(asked, str) else asked)


def _is(name: str, asked: str | Collection[str] | None) -> bool:
    return asked is None or name in _several(asked)
