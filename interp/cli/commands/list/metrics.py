"""Command `interp list metrics`: list of metrics, read from the files that declare them."""

from __future__ import annotations

from interp.cli.making import command
from interp.cli.name_types import METRIC_NAME, note_left_out
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling
from interp.core.literature import paper_text
from interp.core.registry import METRICS


@command(
    over="nothing",
    arguments=("name",),
    out=None,
    options={"name": Spelling(type=METRIC_NAME)},
    example="interp list metrics induction",
)
def metrics(run: Run, name: str | None = None, *, paper: str | None = None) -> None:
    """List the metrics, or explain one.

    NAME is a metric, or a user-supplied .py file that declares one.

    Args:
        name: the metric.
        paper: papers with this text in their title: the call, the command and the test of each.
    """
    from interp.report.printed.listing import metric_listing, metric_text

    if paper is not None:
        run.say(paper_text(paper, name))
    elif name is None:
        run.say(metric_listing())
        note_left_out(METRICS)
    else:
        run.say(metric_text(METRICS.explained(name)))
