"""Command `interp circuit shares`: shares of upstream writers in a head's attention score."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument, text_option
from interp.cli.traced_prompts import aligned_table, saved_in, traced_prompts
from interp.cli.value_types import HEADS, OUT_FOLDER, PromptFile
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.circuits.why.share_check import ShareCheck
    from interp.circuits.why.shares import QKShares


@click.command(
    epilog="Example: interp circuit shares bundled:induction --heads L1H0 --at induction --check"
)
@model_argument
@click.option("--heads", required=True, metavar="L0H1,...", type=HEADS, help="Heads to explain.")
@text_option
@click.option("--file", type=PromptFile(), metavar="FILE",
              help="File with one text per line, in place of --text.")  # fmt: skip
@click.option(
    "--at", default="strongest", show_default=True, metavar="RULE",
    help="Positions: 'strongest' (each query's most attended key), a detector such as induction, "
    "or pairs of query and key such as 12:3,-1:0.",
)  # fmt: skip
@click.option("--top", default=8, show_default=True, type=click.IntRange(1),
              help="Number of terms to print for each head.")  # fmt: skip
@click.option("--null", default="keys", show_default=True,
              type=click.Choice(["keys", "random-weights", "none"]),
              help="Null of each term: its mean over visible keys, or random weights.")  # fmt: skip
@click.option("--check", is_flag=True,
              help="Also remove the largest writers from one side of the head, on held-out "
                   "prompts, and compare the change with the shares.")  # fmt: skip
@click.option("-n", "n", default=16, show_default=True, type=click.IntRange(1), metavar="N",
              help="Number of random prompts if no text is given.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of prompts and random weights.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for shares.json, .csv and .html; `interp atlas` reads it.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def shares(
    source: str, heads: str, text: str | None, file: Path | None, at: str, top: int, null: Any,
    check: bool, n: int, seed: int, out: Path | None, quiet: bool, loading: Loading,
    imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Split the attention scores of heads over pairs of upstream writers.

    A term is what one writer on the query side and one on the key side add to the score. `relative`
    is the term minus its mean over the visible keys: what is equal for all keys has no effect.
    """
    rule = _rule(at)
    import_first(imports)
    voice = Voice.of_command(quiet=quiet)
    from interp.circuits import check_shares
    from interp.circuits import qk_shares as compute

    [(path, name)] = source_labels([source]).items()
    model = loading.load(path, name)
    prompts = traced_prompts(model, text, file, n, seed, voice)
    found = compute(model, heads, prompts, at=rule, null=null, seed=seed)
    click.echo("\n\n".join(_told(found.of(head), top) for head in found.names))
    if check:
        tried = check_shares(model, heads, prompts, at=rule, seed=seed)
        click.echo("\n" + _checked(tried))
        saved_in(out, model.name, tried, "share_check", voice)
    saved_in(out, model.name, found, "shares", voice)


def _rule(text: str) -> Any:
    """Parse pairs of positions; other rules are names."""
    if ":" not in text:
        return text
    try:
        return [(int(q), int(k)) for q, k in (pair.split(":") for pair in text.split(","))]
    except ValueError as error:
        raise OptionError(f"--at {text}: give pairs of positions such as 12:3,-1:0") from error


def _told(found: QKShares, top: int) -> str:
    [name] = found.names
    rows = found.top(top, by="relative").to_pandas()
    table = [("query side", "key side", "term", "95 % interval", "relative", "null")]
    for r in rows.to_dict("records"):
        table.append((
            r["query_writer"], r["key_writer"], f"{r['score']:+.3f}",
            f"{r['low']:+.3f} to {r['high']:+.3f}" if r["low"] == r["low"] else "one prompt",
            f"{r['relative']:+.3f}", f"{r['null']:+.3f}" if r["null"] == r["null"] else "none",
        ))  # fmt: skip
    frame = found.wide()
    whole = f"{frame['score'].sum():+.3f} ({frame['relative'].sum():+.3f} relative to the keys)"
    n = sum(1 for x in found.pairs[name] if x)
    return (
        f"{name} of {found.model}: score {whole} at {found.at} positions of {n} prompts "
        f"({sum(found.pairs[name])} positions); the terms sum to it within "
        f"{found.errors[name]:.1g}\n{aligned_table(table)}"
    )


def _checked(found: ShareCheck) -> str:
    table = [("head", "side", "without", "score", "predicted", "attention", "predicted", "random")]
    for r in found.to_pandas().to_dict("records"):
        table.append((
            f"L{r['layer']}H{r['head']}", r["side"], r["writer"], f"{r['score']:+.3f}",
            f"{r['predicted']:+.3f}", f"{r['attention']:+.3f}", f"{r['attention_predicted']:+.3f}",
            f"{r['null']:+.3f}",
        ))  # fmt: skip
    told = []
    for name in ("score", "attention"):
        r, low, high = found.correlations[name]
        told.append(f"{name} {r:.3f} ({low:.3f} to {high:.3f})")
    return (
        "Change when a writer is removed from one side, on held-out prompts (random: a random "
        "direction of the same length, change of the score):\n"
        f"{aligned_table(table)}\n  correlation of predicted and measured: {', '.join(told)}"
    )
