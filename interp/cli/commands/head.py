"""Command `interp head`: one screen on what one head does on a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.commands.profile import CORPUS
from interp.cli.loading import Loading, loaded, loading_options, source_labels
from interp.cli.name_types import MODEL_NAME
from interp.cli.value_types import HEADS
from interp.cli.written import model_folder
from interp.cli.wrong_models import checked_source
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.profiles.result import Profile

GROUP = "Look"


@click.command(epilog="Example: interp head bundled:induction L1H0")
@click.argument("source", metavar="MODEL", type=MODEL_NAME, callback=checked_source)
@click.argument("head", metavar="HEAD", type=HEADS)
@click.option(
    "--profile",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder that `interp profile -o DIR` wrote; its profile is shown at once.",
)
@click.option(
    "--corpus",
    type=CORPUS.type,
    multiple=True,
    metavar=CORPUS.metavar,
    help=CORPUS.help,
)
@click.option(
    "--examples",
    default=2,
    show_default=True,
    type=click.IntRange(0, 5),
    metavar="N",
    help="Examples of the strongest and of the most surprising queries, each.",
)
@loading_options
def head(
    source: str,
    head: str,
    folder: Path | None,
    corpus: tuple[Path, ...],
    examples: int,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Show what one HEAD of MODEL does on text, such as L5H4, with examples.

    Without --profile the head's layer alone is profiled, which takes a minute on a small model.
    """
    from interp.report.printed.profile import head_text

    if folder is not None and corpus:
        raise OptionError("--profile has its own corpus; give --profile or --corpus, not both")
    if folder is not None:
        found = _kept(folder, next(iter(source_labels((source,)).values())))
    else:
        from interp.profiles.run import profile

        model = loaded(source, loading, imports)
        found = profile(model, list(corpus) or None, heads=[head])
    click.echo(head_text(found, head, examples=examples), nl=False)


def _kept(folder: Path, name: str) -> Profile:
    """Return the profile of a model in a results folder; raises OptionError without one."""
    from interp.profiles.result import Profile

    for place in (folder, model_folder(folder, name)):
        if (path := place / "profile.json").is_file():
            return Profile.load(path)
    raise OptionError(
        f"{folder} holds no profile of {name}; write one with: interp profile {name} -o {folder}"
    )
