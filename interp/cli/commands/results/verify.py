"""Command `interp results verify`: what is damaged or missing in a folder of results."""

from __future__ import annotations

from pathlib import Path

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.stored import stored_results
from interp.core.shell_line import shell_line


@command(
    over="nothing",
    arguments=("folder",),
    out=None,
    after=lambda run: run.failed,
    example="interp results verify results",
)
def verify(run: Run, folder: Path = Path("results")) -> None:
    """Read every file and report what is damaged, changed or missing; exit code 1 if so."""
    from interp.core.dataset import listing, other_files, problems

    store = stored_results(folder)
    wrong = problems(store)
    for problem in wrong:
        run.say(f"{problem.file}: {problem.kind}: {problem.text}")
    if wrong:
        run.failed = 1
        run.say(
            f"{len(wrong)} problems in {folder}; `{shell_line('results', 'repair', folder)}` sets "
            "damaged files aside, and the command that made them computes them again"
        )
    else:
        others = len(other_files(store))
        also = f" and {others} other files of results" if others else ""
        run.say(f"{folder}: {len(listing(store))} results{also}, all complete and as written")
