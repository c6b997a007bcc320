"""Command `interp compare checkpoints`: scores of heads over the checkpoints of a training run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.between import expanded, write_comparison
from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling
from interp.core.errors import OptionError
from interp.model.sources.folder import require_known

if TYPE_CHECKING:
    from interp.heads.checkpoints.result import Emergence
    from interp.model.model import Model


def _check(run: Run) -> None:
    for source in run.sources:
        if not Path(source).expanduser().exists():  # a folder of checkpoints holds no model itself
            require_known(source)
    if run.values["revisions"] and len(run.sources) > 1:
        raise OptionError("--set revisions are those of one hub model; name only that one")


def _write(run: Run, results: list[Any]) -> None:
    name = f"{Path(results[0].provenance['model']).name} emergence"
    write_comparison(run, results[0], "emergence", name)


@command(
    over="sources",
    arguments=("RUN...",),
    options={
        "metrics": Spelling(
            default=(),
            read=expanded,
            help="A metric, or several separated by commas; repeatable. By default previous_token, "
            "induction and first_token.",
        ),
        "revisions": Spelling(
            type=click.STRING,
            metavar="NAME,...",
            read=lambda text: [x.strip() for x in (text or "").split(",") if x.strip()] or None,
        ),
    },
    check=_check,
    each=_write,
    example="interp compare checkpoints bundled:induction -m induction -o results",
)
def checkpoints(
    run: Run,
    sources: tuple[str, ...],
    metrics: Any = None,
    prompts: Any = None,
    *,
    revisions: Any = None,
    seed: int = 0,
    batch_size: int = 16,
    progress: Any = None,
) -> Emergence:
    """Score every head at the checkpoints of a training run, and find when scores change.

    RUN is a folder of checkpoints, bundled:induction, a hub id with --set revisions, or several
    checkpoints. The step is read from trainer_state.json, or from names such as checkpoint-500.

    Args:
        run: the run of the command, which loads models.
        sources: the checkpoints.
        revisions: revisions of the hub model RUN, such as step1000,step2000.
        seed: seed of the random prompts.
        batch_size: prompts per forward pass.
    """
    from interp.heads.checkpoints.emergence import emergence_of

    run_or_sources: Any = sources[0] if len(sources) == 1 else list(sources)

    def load(source: str) -> Model:
        if revisions is None:
            return run.load(source)
        of_revision = replace(run.loading, revision=source)
        return of_revision.checked(run_or_sources, f"{run_or_sources}@{source}", lambda *_: None)

    return emergence_of(
        load,
        run_or_sources,
        metrics or None,
        prompts,
        revisions=revisions,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
