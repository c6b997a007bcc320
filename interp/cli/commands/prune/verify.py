"""Command `interp prune verify`: statements of a pruned checkpoint, computed again."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.name_types import MODEL_NAME
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling


def _holds(run: Run) -> int:
    [(_, [result])] = run.results
    return int(not result.holds)


verify = command(
    "interp.causal.checkpoint.verify:verify_certificate",
    over="nothing",
    arguments=("folder",),
    omit=("tasks",),
    options={
        "folder": Spelling(type=click.Path(exists=True, file_okay=False), metavar="DIR"),
        "original": Spelling(("--against",), MODEL_NAME, "MODEL"),
        "trust_remote_code": Spelling(
            ("--trust-remote-code",),
            click.BOOL,
            help="Run the modelling file of a compact checkpoint, and tasks that are programs.",
        ),
    },
    out=None,
    after=_holds,
    help="Files, weights, sizes, outputs, and the task before, after and under random removals are "
    "compared; what differs is listed, and what cannot be computed again is named. The exit code "
    "is 1 if something differs, or if no task could be computed again.",
    text="interp.report.printed.tables:plain_text",
    example="interp prune verify smaller --against models/mine",
)
