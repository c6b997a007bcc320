"""Command `interp results export`: scores of a folder as one file, or sent to a tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.stored import ONLY, ONLY_OPTIONS, stored_scores
from interp.cli.vocabulary import Spelling
from interp.cli.written import OUT_FILE
from interp.core.errors import OptionError

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
