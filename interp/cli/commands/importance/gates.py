"""Command `interp importance gates`: learned gates on heads, kv groups, layers or MLPs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.causal import Causal, ModelOutcome, Tell, causal_options
from interp.cli.shared_options import models_argument

if TYPE_CHECKING:
    from interp.causal.gating.result import LearnedGates
    from interp.causal.task import Task
    from interp.model.model import Model


@click.command(
    epilog="Example: interp importance gates bundled:induction --method causal -o results"
)
@models_argument
@click.option(
    "--method", default="hard_concrete", show_default=True,
    type=click.Choice(["hard_concrete", "causal"]),
    help="hard_concrete penalises the expected cost of what is kept; causal fits gates under "
        "pressure towards 0 and towards 1, and splits heads into necessary, sufficient, "
        "interfering and irrelevant ones.",
)  # fmt: skip
@click.option(
    "--mlps", default="none", show_default=True, type=click.Choice(["none", "with", "only"]),
    help="Gate MLPs too, or only them.",
)  # fmt: skip
@click.option(
    "--penalty", type=click.FloatRange(min=0), metavar="X",
    help="Price of keeping everything, as a multiple of the task's change when everything is "
        "removed (default 0.5); with causal gates the pressure (default 0.02).",
)  # fmt: skip
@click.option(
    "--cost", default="count", show_default=True,
    type=click.Choice(["count", "parameters", "flops", "cache"]), help="What the penalty counts.",
)  # fmt: skip
@click.option("--restarts", default=3, show_default=True, type=click.IntRange(1), metavar="N",
              help="Number of fits, each from its own start.")  # fmt: skip
@click.option("--steps", default=300, show_default=True, type=click.IntRange(1), metavar="N",
              help="Maximum steps of each fit.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Learning rate.")
@click.option("--random", "n_random", default=100, show_default=True, type=click.IntRange(2),
              metavar="N", help="Number of random sets on held-out prompts.")  # fmt: skip
@causal_options
def gates(causal: Causal, sources: tuple[str, ...], **settings: Any) -> None:
    """Fit gates on the heads of each MODEL: the cheapest set that keeps the task.

    Gates are fitted on half of the prompts. The kept set is judged on the other half, beside random
    sets with as many units in every layer. With --out, gates.json can be given to
    `interp prune --gates`. With several checkpoints of one training run, gates_emergence.html holds
    the curve of every head's gate.
    """
    made: list[LearnedGates] = []

    def work(model: Model, task: Task, game: dict[str, Any], tell: Tell) -> ModelOutcome:
        from interp.causal.gating.learn import learn_gates

        given = {k: v for k, v in game.items() if k != "ledger"}
        found = learn_gates(model, task, progress=tell, **given, **settings)
        folder = causal.folder(model, task, "gates.json", **settings)
        if folder is not None:
            _write(found, folder)
        made.append(found)
        return ModelOutcome([], f"{model.name}\n{found}\n", found.to_pandas())

    code = causal.run(sources, work)
    if len(made) == len(sources) > 1:
        _write_curves(causal, sources, made)
    click.get_current_context().exit(code)


def _write_curves(causal: Causal, sources: tuple[str, ...], made: list[LearnedGates]) -> None:
    """Write curves over training steps, if the sources are checkpoints of one run."""
    from interp.core.errors import OptionError
    from interp.heads.checkpoints.gates import emergence_of_gates
    from interp.heads.checkpoints.steps import steps_of

    steps = steps_of(sources)
    if steps is None or causal.out is None:
        return
    try:
        found = emergence_of_gates(dict(zip(steps, made, strict=True)))
    except OptionError as error:
        causal.voice.note(f"no curves over checkpoints: {error}")
        return
    found.save(causal.out / "gates_emergence.html")
    found.save(causal.out / "gates_emergence.json")
    causal.voice.note(
        f"{causal.out}: gates_emergence.html, curves of gates over {len(steps)} checkpoints"
    )


def _write(found: LearnedGates, folder: Path) -> None:
    found.save(folder / "gates.json")
    found.save(folder / "gates.html")
