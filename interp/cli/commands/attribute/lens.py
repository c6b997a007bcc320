"""Command `interp attribute lens`: what layers predict, through the logit lens or a tuned lens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.shared_options import model_argument, result_option, text_option
from interp.cli.value_types import PromptFile

if TYPE_CHECKING:
    from interp.core.prompt_means import PromptMeans
    from interp.lens.logit import LogitLens


@click.command(
    epilog="Example: interp attribute lens gpt2 --text 'The keys are on the' --tune texts.txt"
)
@model_argument
@text_option
@click.option("-t", "--target", metavar="WORD|OTHER",
    help="Token whose rank is printed at every depth; with --direct the logit that is split, minus "
    "that of OTHER.")  # fmt: skip
@click.option("--tune", type=PromptFile(), metavar="FILE",
    help="Train a tuned lens on the texts of FILE (one per line), print its error on held-out "
    "texts, and read the text through it.")  # fmt: skip
@click.option("--direct", type=PromptFile(), metavar="FILE",
    help="Split the logit of the target over heads, MLPs and the embedding, as means over the "
    "texts of FILE; a line may give its own target after a tab.")  # fmt: skip
@click.option("--split", default="part", show_default=True, type=click.Choice(["part", "source"]),
    help="With --direct: print a row per part, or per head and source token.")  # fmt: skip
@click.option("--position", default=-1, show_default=True, type=int,
    help="Position to read; negative counts from the end.")  # fmt: skip
@click.option("--seed", default=0, show_default=True,
    help="Seed of held-out texts and of random tokens.")  # fmt: skip
@click.option("--top", default=10, show_default=True, type=click.IntRange(1), metavar="K",
    help="Number of parts to print with --direct.")  # fmt: skip
@result_option("the last result")
@loading_options
def lens(
    text: str | None,
    source: str,
    target: str | None,
    tune: Path | None,
    direct: Path | None,
    split: str,
    position: int,
    seed: int,
    top: int,
    out: Path | None,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Print what every layer of MODEL predicts after a text.

    The logit lens applies the final norm and the unembedding to the residual stream after every
    layer. --tune adds a trained affine map per layer; its error is the KL divergence from the
    model's own distribution on held-out texts. --direct splits a logit into what heads, MLPs and
    the embedding add to it, with intervals and the same for random tokens. For the encoder of a
    model that translates or writes from sound, see DecoderLens: `interp study align` and
    `interp study speech` with -m decoder-lens.
    """
    from interp.core.errors import OptionError

    if text is None and tune is None and direct is None:
        raise OptionError("give --text, or --tune FILE, or --direct FILE")
    model = loaded(source, loading, imports)
    tuned = found = None
    if tune is not None:
        from interp.attribution.evaluation.run import read_texts
        from interp.lens import tuned_lens

        found = tuned = tuned_lens(model, read_texts(tune), seed=seed)
        click.echo(tuned_text(tuned))
    if direct is not None:
        from interp.lens import direct_logits

        texts, targets, contrasts = targets_of(direct, target)
        found = direct_logits(
            model,
            texts,
            targets,
            contrasts,
            split=split,  # type: ignore[arg-type]
            position=position,
            seed=seed,
        )
        click.echo(direct_text(found, top))
    if text is not None:
        from interp.lens import logit_lens

        word = None if target is None else target.partition("|")[0]
        found = logit_lens(model, text, k=3, target=word, tuned=tuned)
        click.echo(lens_text(found, position, "logit lens" if tuned is None else "tuned lens"))
    if out is not None and found is not None:
        found.save(out)


def targets_of(file: Path, target: str | None) -> tuple[list[str], list[str], list[str] | None]:
    """Return texts, targets and contrasts of a file of texts, some lines with their own target.

    Raises:
        OptionError: a line has no target, or only some have a contrast.
    """
    from interp.attribution.evaluation.run import read_texts
    from interp.core.errors import OptionError

    texts, targets, contrasts = [], [], []
    for at, line in enumerate(read_texts(file), 1):
        text, tab, own = line.partition("\t")
        asked = own if tab else target
        if not asked:
            raise OptionError(
                f"{file} line {at} has no target; write it after a tab, or give --target"
            )
        word, bar, other = asked.partition("|")
        texts.append(text)
        targets.append(word)
        contrasts += [other] if bar else []
    if contrasts and len(contrasts) != len(texts):
        raise OptionError(
            f"{len(contrasts)} of {len(texts)} lines of {file} have a contrast; give it to all or "
            "to none"
        )
    return texts, targets, contrasts or None


def lens_text(found: LogitLens, position: int, name: str) -> str:
    """Format the first tokens at one position, and the target's rank, by depth.

    Raises:
        OptionError: the position is out of range.
    """
    from interp.lens.finish import row_of
    from interp.report.tokens import shown

    at = row_of(position, len(found.tokens))
    lines = [f"{name} after {shown(found.tokens[at])!r} (position {at})"]
    for d, depth in enumerate(found.depths):
        each = zip(found.top_tokens[d][at], found.top_logits[d, at], strict=True)
        best = ", ".join(f"{shown(token)} {logit:.2f}" for token, logit in each)
        rank = found.target_rank
        says = "" if rank is None else f"  {found.target}: rank {rank[d, at] + 1}"
        lines.append(f"  {depth:<10} {best}{says}")
    return "\n".join(lines)


def tuned_text(found: PromptMeans) -> str:
    """Format the errors of both lenses by depth, on held-out texts."""
    rows = {(r["metric"], r["depth"]): r for r in found.to_pandas().to_dict("records")}
    number = found.notes["held-out texts"]
    lines = [f"KL from the model's distribution in nats, {number} held-out texts [95 %]"]
    for depth in dict.fromkeys(depth for _, depth in rows):
        cells = []
        for metric in ("logit lens", "tuned lens", "gain"):
            row = rows[metric, depth]
            cells.append(f"{metric} {row['score']:.3f} [{row['low']:.3f}, {row['high']:.3f}]")
        lines.append(f"  {depth:<10} {', '.join(cells)}, p {rows['gain', depth]['p_holm']:.2g}")
    null = rows["tuned lens", depth]["null"]
    return "\n".join([*lines, f"  the mean distribution of the training texts: {null:.3f}", ""])


def direct_text(found: PromptMeans, top: int) -> str:
    """Format the largest mean contributions, with their nulls."""
    part = found.top(top, by="abs").to_pandas().to_dict("records")
    lines = [f"{part[0]['metric']}, mean over {part[0]['n']} text(s) [95 %], null: random tokens"]
    for row in part:
        name = row.get("part") or f"L{row['layer']}H{row['head']} from {row['source']}"
        ends = "" if row["low"] != row["low"] else f" [{row['low']:+.3f}, {row['high']:+.3f}]"
        says = f"null {row['null']:+.3f}, p {row['p_holm']:.2g}"
        lines.append(f"  {name:<18} {row['score']:+.3f}{ends}  {says}")
    return "\n".join([*lines, ""])
