"""Command `interp results list`: what a folder of results holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.stored import stored_results

if TYPE_CHECKING:
    import pandas as pd


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
