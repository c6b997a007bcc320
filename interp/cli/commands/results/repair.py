"""Command `interp results repair`: damaged files set aside, the summary built again."""

from __future__ import annotations

from pathlib import Path

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.stored import stored_results


@command(over="nothing", arguments=("folder",), out=None, example="interp results repair results")
def repair(run: Run, folder: Path = Path("results")) -> None:
    """Set damaged files aside, remove leftovers, and build the summary tables and page again.

    Afterwards `interp results verify` finds nothing but jobs of an array that have not run.
    """
    from interp.core.dataset import repair_results
    from interp.report.summary import write_summary

    store = stored_results(folder)
    store.prepare()
    problems = repair_results(store)
    table = write_summary(store)
    for problem in problems:
        what = {"damaged": "set aside", "orphan": "removed"}.get(problem.kind, "to be run again")
        run.say(f"{problem.file}: {problem.kind}: {problem.text}; {what}")
    run.say(
        f"{folder}: {len(problems)} problems; the summary holds {len(table.metrics)} metrics of"
        f" {len(table.models)} models"
    )
