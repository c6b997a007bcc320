"""Command `interp compare match`: heads of one model matched with those of another."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.between import (
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
from interp.cli.name_types import MODEL_NAME
from interp.cli.wrong_models import checked_source

if TYPE_CHECKING:
    from interp.heads.between_models.matches import HeadMatches


@click.command(epilog="Example: interp compare match seed-0 seed-1 --method patterns -o results")
@click.argument("first", metavar="A", type=MODEL_NAME, callback=checked_source)
@click.argument("second", metavar="B", type=MODEL_NAME, callback=checked_source)
@click.option(
    "--method",
    "by",
    default="patterns",
    show_default=True,
    type=click.Choice(["patterns", "ov", "qk"]),
    help="Similarity of two heads: their patterns on shared prompts, or their OV or QK circuits "
    "between tokens of the vocabulary.",
)
@click.option(
    "--within",
    default="layer",
    show_default=True,
    type=click.Choice(["layer", "model"]),
    help="Match heads of the same layer, or of all layers.",
)
@click.option(
    "--random",
    "n_null",
    default=999,
    show_default=True,
    type=click.IntRange(0),
    help="Number of random splits of the heads of both models; 0 for none.",
)
@click.option(
    "--bootstraps",
    "n_boot",
    default=500,
    show_default=True,
    type=click.IntRange(0),
    help="Number of bootstrap draws of the prompts, for the stability; 0 for none.",
)
@comparison_options(top=20)
@loading_options
def match(
    first: str,
    second: str,
    prompt_file: Path | None,
    out: Path | None,
    top: int,
    form: str | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
    **options: Any,
) -> None:
    """Match each head of model A with the most similar head of model B, one to one.

    For runs whose head order differs, such as seeds. p compares a match with the similarity of
    heads inside each model, null is the similarity after random splits of all heads, and stability
    the share of bootstrap draws of the prompts with the same match.
    """
    import interp

    loading.require_device()
    import_first(imports)
    voice = voice_of(quiet)
    prompts = prompts_of_file(prompt_file)
    a, b = loaded_models([first, second], loading, voice)
    with voice.bars("matching") as tell:
        found = interp.match_heads(a, b, prompts, progress=tell, **options)
    if form is not None:
        printed_rows(found, form)
    else:
        click.echo(text_of_matches(found, top))
    if out is not None:
        about = {"hashes": [a.content_hash, b.content_hash], **options}
        about["prompts"] = found.provenance["prompts_hash"]
        name = found.provenance["model"].replace("bundled:", "")
        write_files(found, out, name, "matches", about, voice)


def text_of_matches(found: HeadMatches, k: int) -> str:
    """Format the k most similar matches, and the test of the whole assignment."""
    made = found.provenance
    rows: list[tuple[str, ...]] = [
        ("head", "match", "similarity", "95 %", "next", "null", "p", "p_holm", "p_bh", "stability")
    ]
    records = found.top(k).to_pandas().to_dict("records")
    for row in records:
        within = interval_text(row, ".3f")
        numbers = [_spelled(row[c], ".3f") for c in ("next", "null")]
        numbers += [_spelled(row[c], ".2g") for c in ("p", "p_holm", "p_bh", "stability")]
        name = f"L{row['layer']}H{row['head']}"
        rows.append(
            (name, row["head_b"] or "none", _spelled(row["score"], ".3f"), within, *numbers)
        )
    lines = [f"{made['model']}: {found.metric} ({found.unit}), within one {made['within']}"]
    lines += [aligned_columns(rows), *interval_notes(records)]
    if len(found) > k:
        lines.append(f"  {len(found) - k} further heads; --top {len(found)} prints all")
    if found.p_all is not None:
        lines.append(
            f"  whole assignment: p = {found.p_all:.3g} against {made['n_null']} random splits of "
            "the heads of both models"
        )
    if made["unmatched_b"]:
        lines.append(f"  heads of B without a match: {', '.join(made['unmatched_b'])}")
    return "\n".join([*lines, ""])


def _spelled(x: float, how: str) -> str:
    return "" if math.isnan(x) else format(x, how)
