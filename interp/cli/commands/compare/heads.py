"""Command `interp compare`: paired differences of every head between models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.between import (
    aligned_columns,
    comparison_options,
    interval_notes,
    interval_text,
    loaded_models,
    printed_rows,
    prompts_of_file,
    voice_of,
    write_files,
)
from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.name_types import METRIC_NAMES, MODEL_NAME
from interp.cli.wrong_models import checked_source, checked_sources

if TYPE_CHECKING:
    from interp.heads.between_models.result import ModelDifferences


@click.command(
    epilog="Example: interp compare bundled:induction my-fine-tune -m induction -o results"
)
@click.argument("first", metavar="A", type=MODEL_NAME, callback=checked_source)
@click.argument(
    "others",
    nargs=-1,
    required=True,
    metavar="B...",
    type=MODEL_NAME,
    callback=checked_sources,
)
@click.option(
    "-m",
    "--metric",
    "metrics",
    type=METRIC_NAMES,
    multiple=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="A metric, or several separated by commas; repeatable. By default previous_token, "
    "induction, duplicate_token, first_token and entropy.",
)
@click.option(
    "--with",
    "more",
    multiple=True,
    metavar="MODEL",
    help="A further model on the side of A, such as another seed; repeatable.",
)
@click.option(
    "--paired",
    is_flag=True,
    help="The models of both sides correspond in order, such as runs before and after fine-tuning.",
)
@click.option(
    "--match",
    type=click.Choice(["patterns", "ov", "qk"]),
    help="Pair similar heads (see interp compare match) instead of those with the same layer "
    "and index; "
    "over all layers, if the models have different numbers of them.",
)
@comparison_options(top=5)
@loading_options
def heads(
    first: str,
    others: tuple[str, ...],
    metrics: tuple[str, ...],
    more: tuple[str, ...],
    paired: bool,
    match: str | None,
    prompt_file: Path | None,
    out: Path | None,
    top: int,
    form: str | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
    **options: Any,
) -> None:
    """Compare every head of model A with the same head of model B, on the same prompts.

    The answer comes first: the roles that heads gained or lost, the heads that changed most over
    all metrics, and the change of the loss on the prompts. Changes that may be chance are not
    claimed.

    Differences are B minus A, with intervals over prompts and p corrected over all heads by Holm's
    (p_holm) and Benjamini and Hochberg's method (p_bh). Several models B are a group, such as
    seeds: their mean is compared, and the variation between them is part of the error.
    """
    import interp
    from interp.core.declaration import split_names
    from interp.core.registry import METRICS

    loading.require_device()
    import_first(imports)
    voice = voice_of(quiet)
    prompts = prompts_of_file(prompt_file)
    asked = METRICS.expand([n for text in metrics for n in split_names(text)]) if metrics else None
    sides = [[first, *more], list(others)]
    models = loaded_models([*sides[0], *sides[1]], loading, voice)
    a, b = models[: len(sides[0])], models[len(sides[0]) :]
    with voice.bars("comparison") as tell:
        found = interp.compare(
            a, b, asked, prompts, match=match, paired=paired, top=top, progress=tell, **options
        )
    if form is not None:
        printed_rows(found, form)
    else:
        click.echo(text_of_differences(found, top))
    if out is not None:
        about = {"hashes": [m.content_hash for m in models], "metrics": list(found.metrics)}
        about |= {"prompts": found.provenance["prompts_hash"], "match": match, "paired": paired}
        name = found.provenance["model"].replace("bundled:", "")
        folder = write_files(found, out, name, "differences", about | options, voice)
        if found.patterns:
            from interp.core.files import write_atomically

            text = found.pattern_changes().to_csv(index=False)
            write_atomically(folder / "pattern_changes.csv", text.encode())


def text_of_differences(found: ModelDifferences, k: int) -> str:
    """Format the answer, what changed in patterns, and the largest differences per metric."""
    lines = [f"{found.provenance['model']} (B - A), {found.provenance['prompts']}"]
    if found.answer is not None:
        lines += [f"  {line}" for line in found.answer.lines(k)]
    changed = found.pattern_changes()
    if k and len(changed):
        lines.append("  changed patterns, the query with the largest change per head:")
        heads = changed.groupby(["stack", "head"], sort=False).first().reset_index()
        rows = [_place(row) for row in heads.to_dict("records")]
        lines.append(aligned_columns(rows, "    "))
    for metric in found.metrics:
        part = found[metric]
        unit = str(part.to_pandas()["unit"].iloc[0])
        lines.append(f"  {metric} ({unit}): {found.summary(metric)}")
        rows: list[tuple[str, ...]] = [("head", "A", "B", "B - A", "95 %", "p_holm", "p_bh")]
        records = part.top(k).to_pandas().to_dict("records")
        rows += [_cells(row) for row in records]
        lines += [aligned_columns(rows, "    "), *("  " + x for x in interval_notes(records))]
    return "\n".join([*lines, ""])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    name = f"L{row['layer']}H{row['head']}"
    if isinstance(row.get("head_b"), str) and row["head_b"] != name:
        name += f" -> {row['head_b']}"
    within = interval_text(row, "+.3f")
    p = ("" if math.isnan(row[c]) else f"{row[c]:.2g}" for c in ("p_holm", "p_bh"))
    return (name, f"{row['score_a']:.3f}", f"{row['score_b']:.3f}", f"{row['score']:+.3f}", within,
            *p)  # fmt: skip


def _place(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(row["head"]),
        f"mean change {row['mean_change']:.2f}",
        f"prompt {row['prompt']} query {row['query']} {row['query_token']!r}",
        f"{row['lost_weight']:+.2f} on key {row['lost_key']} {row['lost_token']!r}",
        f"{row['gained_weight']:+.2f} on key {row['gained_key']} {row['gained_token']!r}",
    )
