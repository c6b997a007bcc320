"""Commands `interp results verify`, `repair` and `merge`: the files of folders of results."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.stored import stored_results
from interp.cli.vocabulary import Spelling
from interp.core.errors import OptionError
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


FOLDER = click.Path(path_type=Path)


def _check(run: Run) -> None:
    if run.values["out"] is None and len(run.values["folders"]) < 2:
        raise OptionError("name two folders, or one and --out: interp results merge A B -o ALL")


@command(
    over="nothing",
    arguments=("folders",),
    out=None,
    check=_check,
    inputs={"out": Input(lambda run: run.values["out"], ("out",))},
    options={
        "folders": Spelling(type=FOLDER, metavar="A B...", multiple=True),
        "out": Spelling(("-o", "--out"), FOLDER, "DIR"),
    },
    example="interp results merge gpt2 pythia -o both",
)
def merge(run: Run, folders: tuple[Path, ...], *, out: Path | None = None) -> None:
    """Add the results of folders B... to folder A, or of all to --out; nothing is computed.

    Args:
        out: merge into this folder and leave A as it is.
    """
    from interp.core.dataset import merge_results
    from interp.core.store import Store
    from interp.report.summary import write_summary

    into = Store(folders[0] if out is None else out)
    sources = [stored_results(folder) for folder in folders[0 if out else 1 :]]
    into.prepare()
    count = merge_results(into, sources)
    write_summary(into)
    run.say(f"{into.folder}: {count['added']} results added, {count['present']} already there")
