"""Command `interp results merge`: results of several folders in one."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.stored import stored_results
from interp.cli.vocabulary import Spelling
from interp.core.errors import OptionError

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
