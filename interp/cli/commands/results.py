"""Command `interp results`: list, query, merge, verify, repair and export a folder of results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.folder import NamedGroup
from interp.cli.loading import debug_option
from interp.cli.written import OUT_FILE
from interp.core.errors import OptionError
from interp.core.json_document import rows_text
from interp.core.order import BY

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.store import Store
    from interp.core.table import HeadTable

_FOLDER = click.Path(path_type=Path)
_SUFFIXES = (".parquet", ".csv", ".json")
folder_argument = click.argument("folder", type=_FOLDER, default=Path("results"))


def _form_options(command: Callable) -> Callable:
    for option in (
        click.option("--csv", "form", flag_value="csv", help="Print CSV."),
        click.option("--json", "form", flag_value="json", help="Print JSON, one list of rows."),
    ):
        command = option(command)
    return command


def _only_options(command: Callable) -> Callable:
    for option in (
        click.option("--model", "models", multiple=True, help="Only this model. Repeatable."),
        click.option("-m", "--metric", "metrics", multiple=True, help="Only this metric, with its "
                     "options as they are listed. Repeatable."),
    ):  # fmt: skip
        command = option(command)
    return command


GROUP = "Results"


@click.group(cls=NamedGroup, epilog="Example: interp results list results")
def results() -> None:
    """Read, query and combine folders of results of interp score.

    A folder holds one Parquet file per model, metric and settings, and beside it the value of every
    head on every prompt. FOLDER is ./results by default.
    """


@results.command("list", epilog="Example: interp results list results --csv")
@folder_argument
@_form_options
@debug_option
def list_(folder: Path, form: str | None) -> None:
    """List the results of a folder: model, metric, settings and size."""
    from interp.core.dataset import listing

    frame = listing(_store(folder))
    if form is None:
        frame = frame.drop(columns=["result", "file"])
    _print(frame, form)


@results.command("show", epilog="Example: interp results show results -m induction --top 5")
@folder_argument
@_only_options
@click.option("--top", default=5, show_default=True, type=click.IntRange(1), metavar="K",
              help="Number of heads per metric.")  # fmt: skip
@click.option("--by", default="end", show_default=True, type=click.Choice(BY),
              help="Order of the heads, as in interp score.")  # fmt: skip
@click.option("--by-cluster", is_flag=True, help="Show the score on each cluster of dependent "
              "prompts (a common period, needle, template or order).")  # fmt: skip
@_form_options
@debug_option
def show_heads(
    folder: Path,
    models: tuple[str, ...],
    metrics: tuple[str, ...],
    top: int,
    by: str,
    by_cluster: bool,
    form: str | None,
) -> None:
    """Show the first heads of each metric, with the effective number of prompts.

    The effective number is the number of independent prompts that would give the same standard
    error: prompts that share a period, a needle, a template or an order count as less than one
    each.
    """
    table = _selected(_store(folder), models, metrics)
    if not len(table):
        raise OptionError(f"{folder} holds no results; interp score MODEL -o {folder} makes some")
    _print(_by_cluster(table, top, by) if by_cluster else _first(table, top, by), form)


@results.command(epilog='Example: interp results query "FROM scores LIMIT 5" results')
@click.argument("sql")
@folder_argument
@_form_options
@debug_option
def query(sql: str, folder: Path, form: str | None) -> None:
    """Run an SQL query with DuckDB on the tables results, scores and prompts.

    `results` has one row per result, `scores` one per head and metric (all settings), `prompts` one
    per head and prompt. Such as: interp results query "SELECT model, max(score) FROM scores WHERE
    metric = 'induction' GROUP BY model" results

    A query reads these tables and nothing else: no file, extension or setting. `interp results
    export` writes them to files.
    """
    from interp.core.dataset import run_query

    _print(run_query(_store(folder), sql), form)


@results.command(epilog="Example: interp results merge gpt2 pythia -o both")
@click.argument("folders", nargs=-1, required=True, type=_FOLDER, metavar="A B...")
@click.option("-o", "--out", type=_FOLDER, metavar="DIR",
              help="Merge into this folder and leave A as it is.")  # fmt: skip
@debug_option
def merge(folders: tuple[Path, ...], out: Path | None) -> None:
    """Add the results of folders B... to folder A, or of all to --out; nothing is computed."""
    from interp.core.dataset import merge_results
    from interp.core.store import Store
    from interp.report.summary import write_summary

    if out is None and len(folders) < 2:
        raise OptionError("name two folders, or one and --out: interp results merge A B -o ALL")
    into = Store(folders[0] if out is None else out)
    sources = [_store(folder) for folder in folders[0 if out else 1 :]]
    into.prepare()
    count = merge_results(into, sources)
    write_summary(into)
    click.echo(f"{into.folder}: {count['added']} results added, {count['present']} already there")


@results.command(epilog="Example: interp results verify results")
@folder_argument
@debug_option
def verify(folder: Path) -> None:
    """Read every file completely and report what is damaged or missing; exit code 1 if so."""
    from interp.core.dataset import listing, problems

    store = _store(folder)
    found = problems(store)
    for problem in found:
        click.echo(f"{problem.file}: {problem.kind}: {problem.text}")
    if found:
        click.echo(
            f"{len(found)} problems in {folder}; `interp results repair {folder}` sets damaged"
            " files aside, and the command that made them computes them again"
        )
        click.get_current_context().exit(1)
    click.echo(f"{folder}: {len(listing(store))} results, all complete")


@results.command(epilog="Example: interp results repair results")
@folder_argument
@debug_option
def repair(folder: Path) -> None:
    """Set damaged files aside, remove leftovers, and build the summary tables and page again.

    Afterwards `interp results verify` finds nothing but jobs of an array that have not run.
    """
    from interp.core.dataset import repair_results
    from interp.report.summary import write_summary

    store = _store(folder)
    store.prepare()
    found = repair_results(store)
    table = write_summary(store)
    for problem in found:
        what = {"damaged": "set aside", "orphan": "removed"}.get(problem.kind, "to be run again")
        click.echo(f"{problem.file}: {problem.kind}: {problem.text}; {what}")
    click.echo(
        f"{folder}: {len(found)} problems; the summary holds {len(table.metrics)} metrics of"
        f" {len(table.models)} models"
    )


@results.command(epilog="Example: interp results export results -o scores.csv")
@folder_argument
@click.option("-o", "--out", required=True, type=OUT_FILE, metavar="FILE",
              help="File to write; its suffix is the format: .parquet, .csv or .json.")  # fmt: skip
@click.option("--prompts", is_flag=True, help="Export the value of every head on every prompt.")
@_only_options
@debug_option
def export(
    folder: Path,
    out: Path,
    prompts: bool,
    models: tuple[str, ...],
    metrics: tuple[str, ...],
) -> None:
    """Write the scores, or the values per prompt, of a folder to one new file.

    Scores as .csv get a second file, FILE.provenance.json, which states how they were made.
    """
    if out.suffix.lower() not in _SUFFIXES:
        raise OptionError(f"{out}: unknown format; give a name that ends in {', '.join(_SUFFIXES)}")
    table = _selected(_store(folder), models, metrics)
    if not prompts:
        table.save(out)
        click.echo(f"{out}: {len(table)} rows")
        return
    from interp.core.files import write_atomically

    frame = table.prompts_to_pandas()
    write_atomically(out, _content(frame, out.suffix.lower()))
    click.echo(f"{out}: {len(frame)} rows")


def _content(frame: pd.DataFrame, suffix: str) -> bytes:
    import io

    if suffix == ".parquet":
        out = io.BytesIO()
        frame.to_parquet(out, index=False)
        return out.getvalue()
    return rows_text(frame, suffix[1:]).encode()


def _store(folder: Path) -> Store:
    from interp.core.store import Store

    if not folder.is_dir():
        raise OptionError(f"{folder} is not a folder of results; interp score MODEL -o {folder}")
    return Store(folder)


def _selected(store: Store, models: tuple[str, ...], metrics: tuple[str, ...]) -> HeadTable:
    from interp.core.merge import ordered
    from interp.core.registry import METRICS

    table = store.read()
    if models or metrics:
        table = table.where(model=models or None, metric=metrics or None)
    return ordered(table, list(METRICS))


def _first(table: HeadTable, top: int, by: str) -> pd.DataFrame:

    from interp.core.prompt_values import effective_numbers

    parts = [table.where(model=model).top(top, by=by) for model in table.models]
    rows = type(table).concat(parts).to_pandas()
    heads = ["model", "metric", "stack", "layer", "head"]
    values = table.prompts_to_pandas()
    number = effective_numbers(values.loc[_among(values, rows, heads)])
    keep = [*heads, "score", "sem", "low", "high", "why_no_interval", "null", "p", "n"]
    keep += ["clusters", "n_effective"]
    number = number.astype({name: rows[name].dtype for name in heads})
    merged = rows.merge(number[[*heads, "n_effective"]], on=heads, how="left")
    left_out = [name for name in merged.columns if name not in keep]
    left_out += ["stack"] if len(table.stacks) == 1 else []
    return merged.drop(columns=left_out)


def _by_cluster(table: HeadTable, top: int, by: str) -> pd.DataFrame:
    from interp.core.prompt_values import by_cluster

    rows = (
        type(table)
        .concat([table.where(model=model).top(top, by=by) for model in table.models])
        .to_pandas()
    )
    heads = ["model", "metric", "stack", "layer", "head"]
    values = table.prompts_to_pandas()
    frame = by_cluster(values.loc[_among(values, rows, heads)])
    return frame.drop(columns=["weights", "result"])


def _among(values: pd.DataFrame, rows: pd.DataFrame, columns: list[str]) -> Any:
    import pandas as pd

    asked: Any = rows[columns].astype(str)
    there: Any = values[columns].astype(str)
    return pd.MultiIndex.from_frame(there).isin(pd.MultiIndex.from_frame(asked))


def _print(frame: pd.DataFrame, form: str | None) -> None:
    if form is not None:
        click.echo(rows_text(frame, form), nl=False)
    elif len(frame):
        click.echo(frame.to_string(index=False, float_format=lambda x: f"{x:.4g}", na_rep=""))
    else:
        click.echo("no rows")
