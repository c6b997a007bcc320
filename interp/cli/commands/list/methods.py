"""Command `interp list methods`: attribution methods, read from the files that declare them."""

from __future__ import annotations

from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAME, note_left_out
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling
from interp.core.literature import paper_text
from interp.core.registry import ATTRIBUTION_METHODS


@command(
    over="nothing",
    arguments=("name",),
    out=None,
    options={"name": Spelling(type=ATTRIBUTION_NAME)},
    example="interp list methods occlusion",
)
def methods(run: Run, name: str | None = None, *, paper: str | None = None) -> None:
    """List the attribution methods, or explain one.

    They attribute a model output to the tokens of the input: see `interp attribute`. NAME is a
    method, or a user-supplied .py file that declares one.

    Args:
        name: the method.
        paper: papers with this text in their title: the call, the command and the test of each.
    """
    from interp.report.printed.listing import method_listing, method_text

    if paper is not None:
        run.say(paper_text(paper, name))
    elif name is None:
        run.say(method_listing())
        note_left_out(ATTRIBUTION_METHODS)
    else:
        run.say(method_text(ATTRIBUTION_METHODS.explained(name)))
