"""Folders of stored results: how commands name, open, select and tell them from models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.run import Input
from interp.cli.vocabulary import Spelling
from interp.core.errors import OptionError
from interp.core.result_folder import model_folder
from interp.core.shell_line import shell_line

if TYPE_CHECKING:
    from interp.core.store import Store
    from interp.core.table import HeadTable
    from interp.profiles.result import Profile

ONLY = {"models": Input(lambda run: run.values["models"], ("models",))}
ONLY_OPTIONS = {
    "models": Spelling(help="Only this model. Repeatable."),
    "metrics": Spelling(
        type=click.STRING,
        metavar="NAME",
        read=tuple,
        help="Only this metric, with its options as they are listed. Repeatable.",
    ),
}


def stored_results(folder: Path) -> Store:
    """Return the store of a folder of results; raises OptionError if there is no folder."""
    from interp.core.store import Store

    if not folder.is_dir():
        raise OptionError(
            f"{folder} is not a folder of results; make one with: "
            + shell_line("score", "MODEL", "-o", folder)
        )
    return Store(folder)


def stored_scores(folder: Path, models: tuple[str, ...], metrics: tuple[str, ...]) -> HeadTable:
    """Return the scores in a folder, of some models and metrics."""
    from interp.core.merge import in_metric_order
    from interp.core.registry import METRICS

    table = stored_results(folder).read()
    if models or metrics:
        table = table.where(model=models or None, metric=metrics or None)
    return in_metric_order(table, list(METRICS))


def stored_profile(path: Path, name: str = "", source: str = "") -> Profile:
    """Return the profile of a file or of a folder of results."""
    from interp.profiles.result import Profile

    if path.is_file():
        return Profile.load(path)
    below = model_folder(path, name).glob if name else path.glob
    every = [path / "profile.json", *sorted(below("profile.json" if name else "*/profile.json"))]
    profiles = [x for x in every if x.is_file()]
    if not profiles:
        raise OptionError(
            f"{path} holds no profile{f' of {name}' if name else ''}; write one with: "
            + shell_line("profile", source or name or "MODEL", "-o", path)
        )
    if len(profiles) > 1 and not name:
        names = ", ".join(x.parent.name for x in profiles)
        raise OptionError(
            f"{path} holds {len(profiles)} profiles ({names}); give the folder of one"
        )
    return Profile.load(profiles[0])


def frame_text(results: Any) -> str:
    """Format frames for a terminal."""
    return "\n".join(
        frame.to_string(index=False, float_format=lambda x: f"{x:.4g}", na_rep="")
        if len(frame)
        else "no rows"
        for frame in results
    )


def parted(sources: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the folders and tables of results among arguments, and the models."""
    from interp.report.atlas.sources import is_results

    results = [source for source in sources if is_results(Path(source).expanduser())]
    return results, [source for source in sources if source not in results]
