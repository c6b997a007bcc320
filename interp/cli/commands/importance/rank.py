"""Command `interp importance`: several importances of the same heads, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from interp.cli.causal import Causal, ModelOutcome, Tell, causal_options, importance_lines
from interp.cli.pruning import curves_said
from interp.cli.shared_options import models_argument
from interp.core.declaration import split_names

if TYPE_CHECKING:
    from interp.causal.comparison.result import Comparison
    from interp.causal.task import Task
    from interp.model.model import Model

DEFAULT = "ablation,gate_gradient,aumann_shapley,shapley"


@click.command(epilog="Example: interp importance bundled:induction -m ablation,shapley -o results")
@models_argument
@click.option(
    "-m",
    "--method",
    "methods",
    multiple=True,
    default=(DEFAULT,),
    show_default=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="An importance method, or several separated by commas; repeatable.",
)
@click.option(
    "--null",
    default="none",
    show_default=True,
    type=click.Choice(["random-init", "none"]),
    help="Null baseline: the same on random weights, beside each score.",
)
@click.option(
    "--prune",
    "pruned",
    is_flag=True,
    help="Also compute a pruning curve for each ranking, with the band of random orders.",
)
@click.option(
    "--top", default=5, show_default=True, type=click.IntRange(1), help="Number of heads to print."
)
@causal_options
def rank(
    causal: Causal,
    sources: tuple[str, ...],
    methods: tuple[str, ...],
    null: Any,
    pruned: bool,
    top: int,
) -> None:
    """Score the heads of each MODEL by several methods, and report their agreement.

    The methods answer different questions, so a low agreement is a finding: the page that --out
    writes gives the question of each method, with scatter plots of every pair.
    """
    from interp.causal.comparison.questions import require_methods

    asked = [name for text in methods for name in split_names(text)]
    require_methods(asked)

    def work(model: Model, task: Task, game: dict[str, Any], tell: Tell) -> ModelOutcome:
        from interp.causal.comparison.compare import compare_importances
        from interp.causal.methods import importances

        found = importances(model, task, asked, null=null, progress=tell, **game)
        text = importance_lines(list(found.values()), top)
        if len(found) > 1:
            compared = compare_importances(found)
            text += agreement(compared)
            folder = causal.folder(model, task, "comparison.html", methods=asked, null=null)
            if folder is not None:
                compared.save(folder)
        if pruned:
            text += curves_said(causal, model, task, found, tell, game)
        return ModelOutcome([f.table for f in found.values()], text)

    click.get_current_context().exit(causal.run(sources, work))


def agreement(compared: Comparison) -> str:
    """Format the rank correlations of every pair."""
    import numpy as np

    lines = ["  rank correlation (Spearman, 95 % over prompts)"]
    names = compared.names
    width = max(map(len, names))
    for i, a in enumerate(names):
        for j in range(i + 1, len(names)):
            value, (low, high) = compared.spearman[i, j], compared.spearman_interval[i, j]
            told = "no correlation: all scores equal" if np.isnan(value) else f"{value:+.2f}"
            told += "" if np.isnan(low) else f" ({low:+.2f} to {high:+.2f})"
            lines.append(f"  {a:<{width}}  {names[j]:<{width}}  {told}")
    return "\n".join([*lines, ""])
