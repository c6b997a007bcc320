"""Command `interp results query`: SQL over a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from interp.cli.making import command
from interp.cli.stored import stored_results

if TYPE_CHECKING:
    import pandas as pd


@command(
    over="nothing",
    arguments=("sql", "folder"),
    out="rows",
    text="interp.cli.stored:frame_text",
    example='interp results query "FROM scores LIMIT 5" results',
)
def query(sql: str, folder: Path = Path("results")) -> pd.DataFrame:
    """Run an SQL query with DuckDB on the tables results, scores and prompts.

    `results` has one row per result, `scores` one per head and metric (all settings), `prompts` one
    per head and prompt. Such as: interp results query "SELECT model, max(score) FROM scores WHERE
    metric = 'induction' GROUP BY model" results

    A query reads these tables and nothing else: no file, extension or setting. `interp results
    export` writes them to files.

    Args:
        sql: the query.
    """
    from interp.core.dataset import run_query

    return run_query(stored_results(folder), sql)
