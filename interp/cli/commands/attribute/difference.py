"""Command `interp attribute difference`: tokens behind the difference of two models or prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.name_types import ATTRIBUTION_NAMES, MODEL_NAME
from interp.cli.shared_options import model_argument, result_option, texts_option

if TYPE_CHECKING:
    from interp.core.prompt_means import PromptMeans


@click.command(
    epilog="Example: interp attribute difference gpt2 --file texts.txt --other tuned --per token"
)
@model_argument
@texts_option
@click.option("--other", type=MODEL_NAME, metavar="MODEL",
    help="Second model; without it each line of FILE holds two prompts, separated by a "
    "tab.")  # fmt: skip
@click.option("-m", "--method", default="integrated_gradients", show_default=True,
    type=ATTRIBUTION_NAMES, metavar="NAME[:OPTION=VALUE,...]",
    help="A method of `interp list methods`.")  # fmt: skip
@click.option("-t", "--target", metavar="TARGET",
    help="Number to explain, as for `interp attribute`.")  # fmt: skip
@click.option("--per", "by", default="token", show_default=True,
    type=click.Choice(["token", "position"]),
    help="Print a row per token, or per position of prompts of one length.")  # fmt: skip
@click.option("--position", default=-1, show_default=True, type=int,
    help="Output position of the target; negative counts from the end.")  # fmt: skip
@click.option("--top", default=10, show_default=True, type=click.IntRange(1), metavar="K",
    help="Number of largest rows to print.")  # fmt: skip
@result_option()
@loading_options
def difference(
    file: Path,
    source: str,
    other: str | None,
    method: str,
    target: str | None,
    by: str,
    position: int,
    top: int,
    out: Path | None,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Attribute the difference of a target to tokens, over the texts of FILE (one per line).

    The difference is that of MODEL and --other on the same texts, or of MODEL on the first and the
    second prompt of each line. Scores are means over texts with 95 % intervals; p tests no
    difference, corrected over rows (Holm).
    """
    from interp.attribution.difference import explain_difference
    from interp.attribution.evaluation.run import read_texts
    from interp.core.errors import PromptError

    texts: list[str] = read_texts(file)
    others: list[str] | None = None
    if other is None:
        lines = [text.split("\t") for text in texts]
        if wrong := [i for i, line in enumerate(lines) if len(line) != 2]:
            raise PromptError(
                f"{file} line {wrong[0] + 1} does not hold two prompts separated by a tab; write "
                "pairs, or give --other"
            )
        texts, others = [a.strip() for a, _ in lines], [b.strip() for _, b in lines]
    model = loaded(source, loading, imports)
    found = explain_difference(
        model,
        texts,
        method,
        target,
        other_model=None if other is None else loaded(other, loading, imports),
        other_prompts=others,
        by=by,  # type: ignore[arg-type]
        position=position,
    )
    click.echo(difference_table(found, top))
    if out is not None:
        found.save(out)


def difference_table(found: PromptMeans, top: int) -> str:
    """Format the mean difference of the target and the rows with the largest contributions."""
    from interp.report.tokens import shown

    rows = found.to_pandas().to_dict("records")
    whole = rows[-1]
    unit, by = whole["unit"], found.units[0]
    lines = [
        f"difference of {found.provenance['options']['target']}: {whole['score']:+.4g} {unit} "
        f"[{whole['low']:+.4g}, {whole['high']:+.4g}], {whole['n']} text(s)",
        f"{rows[0]['metric']}, mean contribution by {by}:",
    ]
    first = sorted(rows[:-1], key=lambda r: -abs(r["score"]))[:top]
    for row in first:
        ends = "" if row["low"] != row["low"] else f" [{row['low']:+.3g}, {row['high']:+.3g}]"
        at = f"{row['position']:>4} " if by == "position" else ""
        says = f"n {row['n']}, p {row['p_holm']:.2g}"
        lines.append(f"  {at}{shown(row['token']):<14} {row['score']:+.4g}{ends}  {says}")
    for name, value in found.notes.items():
        lines.append(f"  {name}: {value:.2g}")
    return "\n".join(lines)
