"""Command `interp importance ablate`: effect of ablating each head on a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from interp.cli.causal import Causal, ModelOutcome, Tell, causal_options, importance_lines
from interp.cli.shared_options import models_argument

if TYPE_CHECKING:
    from interp.causal.task import Task
    from interp.model.model import Model


@click.command(
    epilog="Example: interp importance ablate bundled:induction --kind mean-position -o results"
)
@models_argument
@click.option(
    "--all-but-one",
    is_flag=True,
    help="Keep only one head per layer, and ablate the others of the layer.",
)
@click.option(
    "--null",
    default="random-init",
    show_default=True,
    type=click.Choice(["random-init", "none"]),
    help="Null baseline: the same on random weights, the effect of ablation on any network of "
    "this shape.",
)
@click.option(
    "--top", default=5, show_default=True, type=click.IntRange(1), help="Number of heads to print."
)
@causal_options
def ablate(
    causal: Causal, sources: tuple[str, ...], all_but_one: bool, null: Any, top: int
) -> None:
    """Ablate each head of each MODEL and measure the exact effect on the task.

    The score is the change of the task when only this head is ablated, with its standard error over
    prompts. It misses redundant heads; `interp importance shapley` does not.
    """

    def work(model: Model, task: Task, game: dict[str, Any], tell: Tell) -> ModelOutcome:
        from interp.causal import ablation

        score = ablation.all_but_one if all_but_one else ablation.leave_one_out
        told = causal.announce(model)
        found = score(model, task, null=null, progress=tell, announce=told, **game)
        return ModelOutcome([found.table], importance_lines([found], top))

    click.get_current_context().exit(causal.run(sources, work))
