"""Command `interp results export`: scores or values per prompt of a folder as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.stored import ONLY, ONLY_OPTIONS, stored_scores
from interp.cli.vocabulary import Spelling
from interp.cli.written import OUT_FILE
from interp.core.errors import OptionError

SUFFIXES = (".parquet", ".csv", ".json")


def _check(run: Run) -> None:
    out = run.values["out"]
    if out.suffix.lower() not in SUFFIXES:
        raise OptionError(f"{out}: unknown format; give a name that ends in {', '.join(SUFFIXES)}")


@command(
    over="nothing", arguments=("folder",), out=None, check=_check,
    inputs={**ONLY, "out": Input(lambda run: run.values["out"], ("out",))},
    options={
        **ONLY_OPTIONS,
        "out": Spelling(
            ("-o", "--out"), OUT_FILE, "FILE",
            "File to write; its suffix is the format: .parquet, .csv or .json.",
        ),
    },
    example="interp results export results -o scores.csv",
)  # fmt: skip
def export(
    run: Run,
    out: Path,
    folder: Path = Path("results"),
    models: Any = (),
    metrics: Any = (),
    *,
    per_prompt: bool = False,
) -> None:
    """Write the scores, or the values per prompt, of a folder to one new file.

    Scores as .csv get a second file, FILE.provenance.json, which states how they were made.

    Args:
        out: the file.
        per_prompt: export the value of every head on every prompt.
    """
    from interp.core.files import write_atomically
    from interp.core.json_document import frame_bytes

    table = stored_scores(folder, models, metrics)
    if not per_prompt:
        table.save(out)
        run.say(f"{out}: {len(table)} rows")
        return
    frame = table.prompts_to_pandas()
    write_atomically(out, frame_bytes(frame, out.suffix.lower()))
    run.say(f"{out}: {len(frame)} rows")
