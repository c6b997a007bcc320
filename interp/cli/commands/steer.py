"""Command `interp steer`: heads that are scaled or added to, on a task or in what is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from interp.cli.inputs import INPUTS, require_task
from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.vocabulary import Spelling
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model

GROUP = "Change"
OF_TASK = {
    "task": "--task",
    "measure": "--measure",
    "n": "-n",
    "max_length": "--max-length",
    "method": "--method",
}
OF_TEXT = {"generate": "--generate", "temperature": "--set temperature"}


def _check(run: Run) -> None:
    writes = run.values["text"] is not None
    options = OF_TASK if writes else OF_TEXT
    if wrong := [option for name, option in options.items() if run.stated(name)]:
        raise OptionError(
            f"{', '.join(wrong)} {'does not apply to' if writes else 'needs'} --text, from which "
            "the model writes on; without --text a task is measured"
        )
    if not writes:
        require_task(run)


def _task(run: Run) -> Any:
    return None if run.values["text"] is not None else INPUTS["task"].make(run)


@command(
    also={
        "interp.causal.steering.dose:steer": ("method", "n_random", "seed"),
        "interp.causal.steering.writing:generate_steered": ("temperature",),
    },
    inputs={"task": Input(_task, ("task", "measure", "n", "max_length", "seed"), _check)},
    options={
        "n": Spelling(type=click.IntRange(4), default=32),
        "heads": Spelling(help="Heads that are steered together."),
        "text": Spelling(
            help="Text from which the model writes on, with the heads unchanged and changed; in "
            "place of the task."
        ),
    },
    loading=("chat",),
    files=("steer.json", "steer.csv", "steer.html"),
    help="With --text the model writes on, once unchanged and once for each factor (0 by default): "
    "both texts stand side by side, with the first place where they part.",
    example="interp steer bundled:stories --heads L3H0,L3H1 --task stories:recipient",
)
def steer(
    model: Model,
    heads: Any,
    task: Any = None,
    *,
    text: str | None = None,
    generate: int = 40,
    factors: Sequence[float] | None = None,
    progress: Any = None,
    **options: Any,
) -> ResultRows:
    """Measure a task, or write on from a text, while heads are scaled or added to.

    Args:
        model: the model.
        heads: the heads.
        task: the task.
        text: the text.
        generate: number of tokens to write after the text.
        factors: the doses; by default -2,-1,0,0.5,1,1.5,2,3, with --text 0.
        progress: see `Progress`.
        options: options of `interp.causal.steer` and `interp.causal.generate_steered`.
    """
    from interp.causal.steering.dose import steer as measured
    from interp.causal.steering.writing import generate_steered

    options |= {"progress": progress} | ({} if factors is None else {"factors": factors})
    other = OF_TEXT if text is None else OF_TASK
    applying = {name: value for name, value in options.items() if name not in other}
    if text is None:
        return measured(model, heads, task, **applying)
    return generate_steered(model, heads, text, max_new_tokens=generate, **applying)
