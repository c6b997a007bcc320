"""Results of a command: in a list, merged over models, of earlier commands, and as rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.cli.wrapping import print_rows
from interp.core.errors import StoreError
from interp.core.json_document import rows_text
from interp.core.presenter import form_of

if TYPE_CHECKING:
    from interp.core.table import HeadTable


def print_of_each(form: str | None, every: Sequence[tuple[str, Any]]) -> None:
    """Print the rows of results with the names of their models, those of a type together."""
    if form is None:
        return
    import pandas as pd

    from interp.report.printed import result_rows

    kinds = [getattr(result, "_name", type(result).__name__) for _, result in every]
    for kind in dict.fromkeys(kinds):
        same = [each for name, each in zip(kinds, every, strict=True) if name == kind]
        frames = [result_rows(result, model) for model, result in same]
        lines = form == "json" and form_of("json_lines", same[0][1])
        print_rows(rows_text(pd.concat(frames, ignore_index=True), "jsonl" if lines else form))


def merged_scores(result: Any) -> HeadTable | None:
    """Return the scores of heads that are merged over models, if a result has any."""
    from interp.core.table import HeadTable

    if isinstance(result, HeadTable):
        return result
    name = form_of("merged", result)
    return None if name is None else getattr(result, name)


def results_in(found: Any) -> list[Any]:
    """Return the results of a call as a list."""
    if isinstance(found, dict):
        return [*found.values()]
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


def stored_before(path: Path) -> list[HeadTable]:
    """Return the results of earlier commands; a damaged file is moved aside."""
    from interp.core.files import set_aside
    from interp.core.table import HeadTable

    if not path.exists():
        return []
    try:
        return [HeadTable.from_parquet(path)]
    except StoreError as error:
        set_aside(path, error.__cause__ or error)
        return []
