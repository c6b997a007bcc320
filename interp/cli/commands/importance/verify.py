"""Command `interp importance verify`: causal check of every score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from interp.cli.making import GAME, command
from interp.cli.run import Run
from interp.cli.vocabulary import FROM_1, Spelling
from interp.cli.written import as_given

if TYPE_CHECKING:
    from interp.causal.task import Task
    from interp.heads.causal_check.result import Confirmation
    from interp.model.model import Model


def _write(run: Run) -> None:
    from interp.report.checks_folder import write_checks

    if run.out is not None:
        files = write_checks([result for _, [result] in run.results], run.out, as_given())
        run.voice.note(f"{run.out}: {', '.join(files)}")


@command(
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    options={"top": Spelling(type=FROM_1), "n_random": Spelling(type=FROM_1)},
    after=_write,
    example="interp importance verify bundled:stories -m induction --top 2",
)
def verify(
    run: Run,
    model: Model,
    metrics: list[str],
    task: Task,
    *,
    top: int | None = None,
    by: Literal["score", "lowest", "null"] = "score",
    n_random: int = 60,
    progress: Any = None,
    announce: Any = None,
    **game: Any,
) -> Confirmation:
    """Ablate the heads of a score in each MODEL, beside random heads of the same layers.

    A score shows where heads attend; this tests whether they have an effect. All heads with the
    role are ablated together, then each alone. It measures the task associated with the metric (or
    --task), the same answers asked in another form, and the loss on plain text. The last line of a
    metric says what was shown. Each head's output is also taken from a prompt with another answer,
    and from one with the same answer that is reached otherwise: heads that pass ablation and do not
    differ as their score claims are listed. A ratio of 1 and a large p mean that these heads matter
    no more than others; random heads of any layers are reported as well, and how many of them hold
    the same role. If a check is not conclusive, because the model does the task no better than
    chance or because too few sets exist for a small p, this is reported. Retrieval heads are
    checked on needles other than those scored, in the task of the score, unless the model answers
    none of them.

    Args:
        metrics: metric whose top heads are checked, or several separated by commas; repeatable.
        top: number of heads to check, the first by --by; by default all heads with the role that
            the metric decides, or three if no head has it.
        by: order of the heads: the highest first, the lowest, or the farthest above the null.
        n_random: number of random sets of as many heads in the same layers, and of sets of any
            layers; all of them if there are fewer.
        announce: called with the estimated time and memory before a run.
    """
    from interp.circuits.head_checks import confirm
    from interp.core.registry import METRICS

    confirmed = confirm(
        model,
        [METRICS.parse(name) for name in metrics],
        k=top,
        task=task if run.stated("task") else None,
        by=by,
        n_random=n_random,
        n=run.values["n"],
        max_length=run.values["max_length"],
        progress=progress,
        announce=announce,
        **game,
    )
    if run.form is not None:  # rows have no column for it
        for metric, note in confirmed.notes.items():
            run.voice.note(f"{model.name}: {metric}: {note}")
    return confirmed
