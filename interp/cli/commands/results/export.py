"""Commands `interp results export`, `query` and `headvis`: results for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.stored import ONLY, ONLY_OPTIONS, stored_profile, stored_results, stored_scores
from interp.cli.vocabulary import Spelling
from interp.cli.written import OUT_FILE
from interp.core.errors import OptionError

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".parquet", ".csv", ".json")


def _check(run: Run) -> None:
    out, tracker = run.values["out"], run.values["tracker"]
    if tracker is not None:
        return
    if out is None:
        raise OptionError(
            "give the file to write (-o FILE), or where to send the scores (--tracker)"
        )
    if out.suffix.lower() not in SUFFIXES:
        raise OptionError(f"{out}: unknown format; give a name that ends in {', '.join(SUFFIXES)}")


@command(
    over="nothing",
    arguments=("folder",),
    out=None,
    check=_check,
    inputs={**ONLY, "out": Input(lambda run: run.values["out"], ("out",))},
    options={
        **ONLY_OPTIONS,
        "out": Spelling(
            ("-o", "--out"),
            OUT_FILE,
            "FILE",
            "File to write; its suffix is the format: .parquet, .csv or .json. With --tracker the "
            "folder.",
        ),
    },
    example="interp results export results -o scores.csv",
)
def export(
    run: Run,
    out: Path | None = None,
    folder: Path = Path("results"),
    models: Any = (),
    metrics: Any = (),
    *,
    tracker: Literal["dataset", "tensorboard", "wandb", "mlflow"] | None = None,
) -> None:
    """Write the scores of a folder to one new file, or send them.

    Scores as .csv get a second file, FILE.provenance.json, which states how they were made.

    Args:
        out: the file; with --tracker the folder, which wandb and mlflow do not need.
        tracker: a tracker of experiments, which gets the rows, the page and the provenance; or
            dataset, a folder with a card that `hf upload` takes. wandb and mlflow follow their own
            settings, and with -o send nothing.
    """
    table = stored_scores(folder, models, metrics)
    if tracker is not None:
        run.say(f"{table.publish(tracker, out)}: {len(table)} rows")
        return
    assert out is not None  # checked
    table.save(out)
    run.say(f"{out}: {len(table)} rows")


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


@command(
    over="nothing",
    arguments=("folder",),
    out=None,
    inputs={"out": Input(lambda run: run.values["out"], ("out",))},
    options={"out": Spelling(("-o", "--out"), click.Path(path_type=Path), "DIR")},
    example="interp results headvis results -o tree",
)
def headvis(
    run: Run, folder: Path = Path("results"), *, out: Path, stack: str | None = None
) -> None:
    """Write the profile of a folder as a HeadVis tree, in the form that Neuronpedia uses.

    The tree can be read back: `interp atlas TREE`.

    Args:
        folder: the folder, which `interp profile -o DIR` wrote, or a profile.
        out: folder of the tree, which must be empty or not exist.
        stack: attention stack to write, where the model has several.
    """
    from interp.profiles.headvis import write_headvis

    profile = stored_profile(folder)
    place = write_headvis(profile, out, stack=stack)
    run.say(f"{place}: {len(list((place / 'heads').iterdir())):,} heads")
