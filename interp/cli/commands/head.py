"""Command `interp head`: one screen on what one head does on a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.stored import stored_profile
from interp.cli.value_types import HEADS
from interp.cli.vocabulary import Spelling
from interp.core.errors import OptionError
from interp.model.loading import source_labels
from interp.model.sources.known import require_known

GROUP = "Look"
DOCUMENTS = 128  # read for one head: enough for intervals, within a minute on a small model


def _check(run: Run) -> None:
    require_known(*run.sources)
    if run.values["load"] is not None and run.values["corpus"]:
        raise OptionError("the profile of --load has its own corpus; give one of them, not both")


@command(
    over="sources",
    arguments=("MODEL", "head"),
    loading=("chat",),
    options={
        "head": Spelling(type=HEADS),
        "load": Spelling(
            type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR"
        ),
        "n_examples": Spelling(type=click.IntRange(0, 5), metavar="N"),
    },
    out=None,
    check=_check,
    example="interp head bundled:induction L1H0",
)  # fmt: skip
def head(
    run: Run,
    sources: tuple[str],
    head: str,
    *,
    load: Path | None = None,
    corpus: Any = None,
    n_examples: int = 2,
    progress: Any = None,
) -> None:
    """Show what one HEAD of MODEL does on text, such as L5H4, with examples.

    Without --load the head's layer alone is profiled, on at most 128 documents, which takes a
    minute on a small model.

    Args:
        sources: the model.
        load: folder that `interp profile -o DIR` wrote; its profile is shown at once.
        corpus: the documents.
        n_examples: examples of the strongest and of the most surprising queries, each.
    """
    if load is not None:
        found = stored_profile(load, next(iter(source_labels(sources).values())))
    else:
        from interp.profiles.run import profile

        found = profile(
            run.load(*sources), corpus, heads=[head], n_documents=DOCUMENTS, progress=progress
        )
    run.say(found.about(head, n_examples=n_examples).removesuffix("\n"))
