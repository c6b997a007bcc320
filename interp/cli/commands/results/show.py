"""Commands `interp results show` and `list`: what a folder of results holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.stored import ONLY, ONLY_OPTIONS, stored_results, stored_scores
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.errors import OptionError
from interp.core.order import BY
from interp.core.shell_line import shell_line

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.table import HeadTable


@command(
    over="nothing",
    arguments=("folder",),
    inputs=ONLY,
    out="rows",
    options={**ONLY_OPTIONS, "top": Spelling(type=FROM_1), "by": Spelling(type=click.Choice(BY))},
    text="interp.cli.stored:frame_text",
    example="interp results show results -m induction --top 5",
)
def show(
    folder: Path = Path("results"),
    models: Any = (),
    metrics: Any = (),
    *,
    top: int = 5,
    by: str = "end",
    by_cluster: bool = False,
) -> pd.DataFrame:
    """Show the first heads of each metric, with the effective number of prompts.

    The effective number is the number of independent prompts that would give the same standard
    error: prompts that share a period, a needle, a template or an order count as less than one
    each.

    Args:
        top: number of heads per metric.
        by: order of the heads, as in interp score.
        by_cluster: show the score on each cluster of dependent prompts (a common period, needle,
            template or order).
    """
    table = stored_scores(folder, models, metrics)
    if not len(table):
        advice = shell_line("score", "MODEL", "-o", folder)
        raise OptionError(f"{folder} holds no results; make some with: {advice}")
    return (first_heads_by_cluster if by_cluster else first_heads)(table, top, by)


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


@command(
    over="nothing",
    arguments=("folder",),
    out="rows",
    text="interp.cli.stored:frame_text",
    example="interp results list results --csv",
)
def list(run: Run, folder: Path = Path("results")) -> pd.DataFrame:
    """List the results of a folder: model, metric, settings and size."""
    from interp.core.dataset import listing

    frame = listing(stored_results(folder))
    return frame if run.form is not None else frame.drop(columns=["result", "file"])
