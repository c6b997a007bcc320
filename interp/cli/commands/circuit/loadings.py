"""Command `interp circuit loadings`: what the output of a head is made of."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument, text_option
from interp.cli.traced_prompts import aligned_table, saved_in, traced_prompts
from interp.cli.value_types import HEADS, OUT_FOLDER, PromptFile


@click.command(
    epilog="Example: interp circuit loadings MODEL --heads L3H1 --text 'When Mary and John "
    "went' -t ' Mary'"
)
@model_argument
@click.option("--heads", required=True, metavar="L0H1,...", type=HEADS, help="Heads to explain.")
@text_option
@click.option(
    "--file",
    type=PromptFile(),
    metavar="FILE",
    help="File with one text per line, all of one length in tokens.",
)
@click.option(
    "-t",
    "--target",
    metavar="TOKEN",
    help="Token whose logit is explained; by default the top prediction.",
)
@click.option("--contrast", metavar="TOKEN",
              help="Token whose logit is subtracted; by default the mean of all.")  # fmt: skip
@click.option(
    "--position",
    default=-1,
    show_default=True,
    help="Position of the output that is explained; negative counts from the end.",
)
@click.option("--per", "by", type=click.Choice(["writer", "source"]),
              help="Sum over source positions, or over writers.")  # fmt: skip
@click.option("--top", default=10, show_default=True, type=click.IntRange(1),
              help="Number of parts to print.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of the random prompt.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for loadings.json, .csv and .html.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def loadings(
    source: str, heads: str, text: str | None, file: Path | None, target: str | None,
    contrast: str | None, position: int, by: str | None, top: int, seed: int, out: Path | None,
    quiet: bool, loading: Loading, imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Split the direct effect of heads on a logit over source positions and upstream writers.

    Attention patterns and norms are held at their values in the run; the parts sum to the effect.
    """
    import_first(imports)
    voice = Voice.of_command(quiet=quiet)
    from interp.circuits import head_loadings

    [(path, name)] = source_labels([source]).items()
    model = loading.load(path, name)
    prompts = traced_prompts(model, text, file, 1, seed, voice)
    found = head_loadings(
        model, heads, prompts, target=_token(target), contrast=_token(contrast), position=position
    )
    shown = found if by is None else found.by(by)
    whole = float(found.per_prompt.sum(0).mean())
    click.echo(
        f"{', '.join(found.errors)} of {found.model} on the logit of {found.direction}: "
        f"{whole:+.4f} at position {found.position}, mean of {found.per_prompt.shape[1]} prompts"
    )
    table = [("head", "source", "writer", "logit", "standard error")]
    for r in shown.top(top).to_pandas().to_dict("records"):
        error = f"{r['sem']:.4f}" if r["sem"] == r["sem"] else "one prompt"
        table.append((f"L{r['layer']}H{r['head']}", r["source"], r["writer"], f"{r['score']:+.4f}",
                      error))  # fmt: skip
    click.echo(aligned_table(table))
    saved_in(out, model.name, found, "loadings", voice)


def _token(text: str | None) -> str | int | None:
    """Read a number as a token id."""
    return int(text) if text is not None and text.isdecimal() else text
