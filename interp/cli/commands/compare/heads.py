"""Command `interp compare`: paired differences of every head between models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from interp.cli.between import expanded, write_comparison
from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling

if TYPE_CHECKING:
    from interp.heads.between_models.result import ModelDifferences
    from interp.model.model import Model


def _with_more(run: Run) -> None:
    first, *others = run.sources
    run.sources = (first, *run.values["more"], *others)


def _write(run: Run, results: list[Any]) -> None:
    [found] = results
    folder = write_comparison(run, found, "differences", found.provenance["model"])
    if folder is not None and found.patterns:
        from interp.core.files import write_atomically

        text = found.pattern_changes().to_csv(index=False)
        write_atomically(folder / "pattern_changes.csv", text.encode())


@command(
    over="all",
    arguments=("A", "B..."),
    omit=("a", "b"),
    options={
        "metrics": Spelling(
            default=(),
            read=expanded,
            help="A metric, or several separated by commas; repeatable. By default previous_token, "
            "induction, duplicate_token, first_token and entropy.",
        ),
    },
    check=_with_more,
    each=_write,
    example="interp compare bundled:induction my-fine-tune -m induction -o results",
)
def heads(
    models: list[Model],
    metrics: Any = None,
    prompts: Any = None,
    *,
    more: tuple[str, ...] = (),
    paired: bool = False,
    match: Literal["patterns", "ov", "qk"] | None = None,
    top: int = 5,
    seed: int = 0,
    batch_size: int = 16,
    progress: Any = None,
) -> ModelDifferences:
    """Compare every head of model A with the same head of model B, on the same prompts.

    The answer comes first: the roles that heads gained or lost, the heads that changed most over
    all metrics, and the change of the loss on the prompts. Changes that may be chance are not
    claimed.

    Differences are B minus A, with intervals over prompts and p corrected over all heads by Holm's
    (p_holm) and Benjamini and Hochberg's method (p_bh). Several models B are a group, such as
    seeds: their mean is compared, and the variation between them is part of the error.

    Args:
        more: a further model on the side of A, such as another seed; repeatable.
        paired: the models of both sides correspond in order, such as runs before and after
            fine-tuning.
        match: pair similar heads (see interp compare match) instead of those with the same layer
            and index; over all layers, if the models have different numbers of them.
        top: number of heads to print, of each metric.
        seed: seed of the random prompts.
        batch_size: prompts per forward pass.
    """
    import interp

    first = 1 + len(more)
    return interp.compare(
        models[:first], models[first:], metrics or None, prompts, match=match, paired=paired,
        top=top, seed=seed, batch_size=batch_size, progress=progress,
    )  # fmt: skip
