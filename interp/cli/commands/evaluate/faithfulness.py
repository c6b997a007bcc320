"""Command `interp evaluate faithfulness`: attributions against the effect of removing tokens."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.context import COMMAND
from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import methods_option, model_argument, texts_option
from interp.cli.value_types import OUT_FOLDER, PromptFile
from interp.cli.written import kept_folder

if TYPE_CHECKING:
    from interp.attribution.evaluation.result import Faithfulness

PRINTED = ("spearman", "aopc", "aopc_signed", "soft_comprehensiveness", "soft_sufficiency")
DEFAULT = "attn_lrp,gradient_x_input,raw_attention,rollout"


@click.command(
    epilog="Example: interp evaluate faithfulness gpt2 --file texts.txt -m attn_lrp,rollout -o "
    "results"
)
@model_argument
@texts_option
@methods_option(
    DEFAULT,
    " Random scores, the norm of embeddings and the ranking by occlusion are always included.",
)
@click.option(
    "-t",
    "--target",
    metavar="TARGET",
    help="Number to explain, as for `interp attribute`, or nearest: the similarity with the "
    "nearest other text of FILE.",
)
@click.option(
    "--how",
    default="",
    metavar="delete|mask|mean|ID",
    help="How tokens are removed; by default mask if there is a mask token, otherwise mean.",
)
@click.option("--special", is_flag=True, help="Include tokens that the tokenizer adds.")
@click.option(
    "--draws",
    default=8,
    show_default=True,
    type=click.IntRange(0),
    help="Number of random draws of the soft measures; 0 omits these measures.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of these draws.")
@click.option(
    "--batch-size",
    default=16,
    show_default=True,
    type=click.IntRange(1),
    help="Number of inputs per forward pass; affects numbers only by rounding.",
)
@click.option(
    "--clusters",
    "cluster_file",
    type=PromptFile(),
    metavar="FILE",
    help="File with one label per text: texts with the same label share a document or template, "
    "and errors and tests are over labels.",
)
@click.option(
    "-o",
    "--out",
    type=OUT_FOLDER,
    metavar="DIR",
    help="Folder for a page, tables and finished rows; the same command resumes an interrupted "
    "run.",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def faithfulness(
    file: Path,
    source: str,
    methods: str,
    target: str | None,
    how: str,
    special: bool,
    draws: int,
    seed: int,
    batch_size: int,
    cluster_file: Path | None,
    out: Path | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Test how faithful attribution methods are, over the texts of FILE (one per line).

    Means and standard errors are over texts, best method first. "Beats" lists the methods that a
    method is better than in a paired permutation test, corrected for all pairs of methods (Holm, 5
    %). With few texts no difference can be significant; the table then gives the number of texts
    needed.
    """
    from interp.attribution.evaluation.run import faithfulness as measure
    from interp.attribution.evaluation.run import read_texts
    from interp.attribution.named import choose_methods

    chosen, texts = choose_methods([methods]), read_texts(file)
    context = click.get_current_context()
    voice = Voice(quiet=quiet, debug=bool(context.meta.get("interp.debug")))
    model = loaded(source, loading, imports)
    with voice.bars(model.name) as tell:
        found = measure(
            model, texts, chosen, None if target == "default" else target,
            how=how, special=special, draws=draws, seed=seed, batch_size=batch_size,
            keep=None if out is None else kept_folder(out), tell=tell,
            clusters=None if cluster_file is None else read_texts(cluster_file),
        )  # fmt: skip
    for name in PRINTED:
        click.echo(measure_table(found, name))
    if found.incomplete_warning:
        voice.note(found.incomplete_warning)
    if found.warning:
        voice.note(found.warning)
    if out is not None:
        found.save_folder(out, command=shlex.join(["interp", *context.meta[COMMAND]]))
        voice.note(f"{out}: faithfulness.html (open it in a browser), .csv, .json")
    for method, text, error in found.failures:
        voice.error(f"text {text + 1}, {method}: {error}")
    if found.failures:
        context.exit(1)


def measure_table(found: Faithfulness, measure: str) -> str:
    """Format one measure: methods, the best first, with the methods that each beats."""
    rows = [r for r in found.summary(measure) if r[3]]
    what, more = found.measures[measure]
    lines = [f"{measure}: {what}{'' if more else ' (lower is better)'}; {len(found.texts)} texts"]
    if not rows:
        return f"{lines[0]}\n  not measured\n"
    beats, limit = found.better_than(measure), found.limit(measure)
    width = max(len(r[0]) for r in rows)
    for method, mean, sem, n in rows:
        left_out = "" if n == len(found.texts) else f" ({n} texts)"
        error = "" if math.isnan(sem) else f" ± {sem:.3f}"
        beaten = beats[method]
        told = "all others" if len(beaten) == len(rows) - 1 > 0 else ", ".join(beaten) or "none"
        told = f"  beats {told}" if limit.can_show else ""
        lines.append(f"  {method:<{width}}  {mean:>7.3f}{error}{left_out}{told}")
    if not limit.can_show and limit.pairs:
        lines.append(f"  {limit}")
    return "\n".join([*lines, ""])
