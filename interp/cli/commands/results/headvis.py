"""Command `interp results headvis`: a stored profile as a tree that HeadVis viewers read."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.stored import stored_profile
from interp.cli.vocabulary import Spelling


@command(
    over="nothing",
    arguments=("folder",),
    out=None,
    inputs={"out": Input(lambda run: run.values["out"], ("out",))},
    options={"out": Spelling(("-o", "--out"), click.Path(path_type=Path), "DIR")},
    example="interp results headvis results -o tree",
)
def headvis(
    run: Run, folder: Path = Path("results"), *, out: Path, stack: str | None = None
) -> None:
    """Write the profile of a folder as a HeadVis tree, in the form that Neuronpedia uses.

    The tree can be read back: `interp atlas TREE`.

    Args:
        folder: the folder, which `interp profile -o DIR` wrote, or a profile.
        out: folder of the tree, which must be empty or not exist.
        stack: attention stack to write, where the model has several.
    """
    from interp.profiles.headvis import write_headvis

    profile = stored_profile(folder)
    place = write_headvis(profile, out, stack=stack)
    run.say(f"{place}: {len(list((place / 'heads').iterdir())):,} heads")
