"""Command `interp compare`: paired differences of every head between models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from interp.cli.between import expanded, write_comparison
from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling
from interp.cli.written import as_given
from interp.core.csv_rows import csv_text
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.heads.between_models.result import ModelDifferences
    from interp.model.model import Model


def _with_more(run: Run) -> None:
    first, *others = run.sources
    if run.values["each"]:
        if run.values["more"]:
            raise OptionError(
                "--set each compares every model B by itself with one model A; leave out --with"
            )
        run.sources, run.values["others"] = (first,), tuple(others)
    else:
        run.sources = (first, *run.values["more"], *others)


def _beside(run: Run) -> None:
    """Compare one model after another with A; those that fail are listed with their reason."""
    import interp
    from interp.core.files import write_atomically
    from interp.core.result_folder import folder_for
    from interp.heads.sweep.each import each_model
    from interp.model.loading import source_labels
    from interp.report.several_page import several, several_page

    options = {k: run.values[k] for k in ("match", "seed", "batch_size")}
    (model,) = run.made["models"]
    compared: list[ModelDifferences] = []

    def work(source: str, name: str) -> None:
        asked = run.values["metrics"] or None
        other = run.load(source)
        compared.append(
            interp.compare(model, other, asked, run.made.get("prompts"), top=0, **options)
        )

    failed = each_model(source_labels(run.values["others"]), run.voice, work)
    run.failed += len(failed)
    result = several(compared, failed)
    corrected = iter(result.rows["p_holm"] if compared else ())
    together = [replace(one, p_holm=tuple(next(corrected) for _ in one.rows)) for one in compared]
    run.results.append((model, together))
    run.say(f"{result.sentence}.")
    for one in compared:
        if one.answer is not None:
            run.say(f"  {one.answer.sentence}")
    if run.out is not None:
        about = {"hashes": [model.content_hash], "others": list(run.values["others"]), **options}
        about["metrics"] = run.values["metrics"]
        folder = folder_for(run.out, f"models beside {model.name}", "differences.html", about)
        page = several_page(result, command=as_given())
        write_atomically(folder / "differences.csv", csv_text(result.rows).encode())
        write_atomically(folder / "differences.html", page)
        run.voice.note(f"{folder}: differences.html (open it in a browser), differences.csv")


def _write(run: Run, results: list[Any]) -> None:
    if run.values["each"]:
        return _beside(run)
    [result] = results
    folder = write_comparison(run, result, "differences", result.provenance["model"])
    if folder is not None and result.patterns:
        from interp.core.files import write_atomically

        text = csv_text(result.pattern_changes())
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
    each: bool = False,
    match: Literal["patterns", "ov", "qk"] | None = None,
    top: int = 5,
    seed: int = 0,
    batch_size: int = 16,
    progress: Any = None,
) -> ModelDifferences | None:
    """Compare every head of model A with the same head of model B, on the same prompts.

    The answer comes first: the roles that heads gained or lost, the heads that changed most over
    all metrics, and the change of the loss on the prompts. Changes that may be chance are not
    claimed.

    Differences are B minus A, with intervals over prompts and p corrected over all heads by Holm's
    (p_holm) and Benjamini and Hochberg's method (p_bh). Several models B are a group, such as
    seeds: their mean is compared, and the variation between them is part of the error.

    Args:
        more: a further model on the side of A, such as another seed; repeatable.
        each: compare every model B with A by itself, on one page: a map for each, claims corrected
            over all of them, and the models that failed. They are loaded one after another.
        match: pair similar heads (see interp compare match) instead of those with the same layer
            and index; over all layers, if the models have different numbers of them.
        top: number of heads to print, of each metric.
        seed: seed of the random prompts.
        batch_size: prompts per forward pass.
    """
    import interp

    if each:
        return None  # the models follow one after another, each as it is loaded
    first = 1 + len(more)
    return interp.compare(
        models[:first],
        models[first:],
        metrics or None,
        prompts,
        match=match,
        top=top,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
