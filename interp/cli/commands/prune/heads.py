"""Command `interp prune`: task against the number of removed heads, beside random orders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.causal import Causal, ModelOutcome, Tell, causal_options
from interp.cli.pruning import SEARCHED, curves_frame, made_curves, pruning_lines, searched_curves
from interp.cli.shared_options import models_argument
from interp.core.declaration import split_names

if TYPE_CHECKING:
    from interp.causal.task import Task
    from interp.model.model import Model


@click.command(
    epilog="Example: interp prune bundled:induction --method ablation --keep 8 --save smaller"
)
@models_argument
@click.option(
    "--method",
    "by",
    multiple=True,
    default=("aumann_shapley",),
    show_default=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="The ranking: an importance as in `interp importance`; greedy, which evaluates every "
    "remaining head after each removal; gates, learned as in `interp importance gates`; or "
    "pairs, from the "
    "effects of all pairs. Several are separated by commas; repeatable. With gates or pairs, all "
    "orders are found on half of the prompts and measured on the other.",
)
@click.option(
    "--order",
    default="least-first",
    show_default=True,
    type=click.Choice(["least-first", "most-first"]),
    help="Heads that are removed first.",
)
@click.option(
    "--random",
    "n_random",
    default=20,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Number of random orders, for the band.",
)
@click.option(
    "--counts",
    "steps",
    type=click.IntRange(2),
    metavar="N",
    help="Number of counts to evaluate; by default up to 24, and for random orders of more "
    "heads 6.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Tolerated decrease of the task, in its unit; by default a tenth of the decrease at the "
    "end of the curve.",
)
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="DIR",
    help="Write a checkpoint without some heads, which loads without interp, with a certificate. "
        "The heads to remove are those of --heads, those that --method ranks below the first "
        "--keep, or those that --gates closes.",
)  # fmt: skip
@click.option("--keep", type=click.IntRange(1), metavar="N",
              help="With --save: number of heads to keep.")  # fmt: skip
@click.option(
    "--gates",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="With --save: gates.json of `interp importance gates`.",
)
@click.option("--equal", is_flag=True, help="With --keep: equally many heads in every layer, and "
              "in every kv group that is kept, so that the form 'smaller' applies. Whole groups or "
              "single heads of every group go, whichever keeps the larger scores.")  # fmt: skip
@click.option(
    "--form", "checkpoint_form", default="auto", show_default=True,
    type=click.Choice(["auto", "smaller", "zeroed", "compact"]),
    help="With --save: 'smaller' has fewer heads in its config; 'zeroed' has full size; 'compact' "
        "is smaller layer by layer, with a modelling file that must be trusted. 'auto' is smaller "
        "where the config can express it, otherwise zeroed.",
)  # fmt: skip
@click.option("--repair", default=0, show_default=True, type=click.IntRange(0), metavar="STEPS",
              help="With --save: steps of training towards the original's outputs, on prompts that "
              "are not judged.")  # fmt: skip
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1), metavar="N",
              help="With --keep and --repair: remove heads in N rounds, each ranked and repaired "
              "anew.")  # fmt: skip
@click.option("--repair-rate", type=click.FloatRange(min=0, min_open=True), metavar="X",
              help="Learning rate of --repair (default 3e-4).")  # fmt: skip
@causal_options
def heads(
    causal: Causal,
    sources: tuple[str, ...],
    by: tuple[str, ...],
    order: Any,
    n_random: int,
    steps: int | None,
    tolerance: float | None,
    save: Path | None,
    keep: int | None,
    gates: Path | None,
    equal: bool,
    checkpoint_form: str,
    repair: int,
    rounds: int,
    repair_rate: float | None,
) -> None:
    """Remove heads of each MODEL one after another, the least important first.

    With a good ranking the task stays intact for long. Compare with the band of random orders,
    which comes with every curve. Prompts used for the ranking bias the result in its favour, so
    heads are also ranked on one half of the prompts and judged on the other; that number is printed
    first.

    With --save, a checkpoint without some heads is written instead. Heads are chosen on one half of
    the prompts, and the certificate states the task before and after on the other half, beside
    random removals; `interp prune verify DIR` computes it again.
    """
    from interp.causal.comparison.questions import require_methods
    from interp.cli.saving import Saving

    asked = [name for text in by for name in split_names(text)]
    require_methods(name for name in asked if name not in ("greedy", *SEARCHED))

    saving = Saving(save, keep, gates, equal, checkpoint_form, repair, rounds, repair_rate)
    saving.check(len(sources), tuple(asked), causal.game["kind"], causal.game.get("heads"))

    def work(model: Model, task: Task, game: dict[str, Any], tell: Tell) -> ModelOutcome:
        if saving.folder is not None:
            text, rows = saving.write(causal, sources[0], model, task, tuple(asked), game, tell)
            return ModelOutcome([], text, rows)
        from interp.causal.methods import importances

        if SEARCHED & {*asked}:
            given = {k: v for k, v in game.items() if k != "ledger"}
            made = searched_curves(
                causal, model, task, asked, order, tell,
                given | {"n_random": n_random, "steps": steps},
            )  # fmt: skip
            return ModelOutcome([], pruning_lines(made, tolerance), curves_frame(made, model.name))
        scored = [name for name in asked if name != "greedy"]
        found = importances(model, task, scored, progress=tell, **game) if scored else {}
        rankings = {name: found.get(name) for name in asked}
        options = game | {"order": order, "n_random": n_random, "steps": steps}
        made = made_curves(causal, model, task, rankings, tell, options)
        frame = curves_frame(made, model.name)
        return ModelOutcome(
            [f.table for f in found.values()], pruning_lines(made, tolerance), frame
        )

    click.get_current_context().exit(causal.run(sources, work))
