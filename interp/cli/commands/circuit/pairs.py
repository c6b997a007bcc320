"""Command `interp circuit pairs`: contrast pairs from templates or a model's own completions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import file_option, model_argument
from interp.core.errors import UnknownName

if TYPE_CHECKING:
    from interp.circuits.made_pairs import MadePairs

FORMATS = (".jsonl", ".csv", ".parquet", ".json", ".toml", ".html")
SHOWN = 6


@click.command(
    epilog="Example: interp circuit pairs gpt2 --file gave.toml -n 64 --only preferred -o "
    "gave.jsonl"
)
@model_argument
@file_option("File that describes the pairs.", required=True)
@click.option("-n", default=64, show_default=True, type=click.IntRange(6), help="Number of pairs.")
@click.option(
    "--only", "keep", default="all", show_default=True,
    type=click.Choice(["all", "preferred", "first"]),
    help="Pairs to keep: all, those where the model prefers the answer to the wrong one, or those "
    "where the answer is also its most likely token.",
)  # fmt: skip
@click.option(
    "--least-probability", default=0.0, show_default=True, metavar="P",
    type=click.FloatRange(0, 1, max_open=True),
    help="Minimum probability of the answer after the clean prompt.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of words and templates.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write the pairs: .jsonl for `interp circuit` and other commands with a task file; .csv, "
    ".parquet, .json and .html with what was measured.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def pairs(
    source: str,
    file: Path,
    out: Path | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
    **options: Any,
) -> None:
    """Make pairs of prompts of equal length for MODEL from FILE, for `interp circuit`.

    \b
    FILE.toml has templates with slots:
      [slots]
      A = ["Anna", "Peter", "Lucy"]
      B = "A"                          # another word of the same list
      [[templates]]
      clean = "{A} and {B} were at home. {A} gave a ball to"
      corrupted = "{A} and {B} were at home. Someone gave a ball to"
      answer = " {B}"
      wrong = " {A}"
      roles = {S2 = "A:2"}             # the second {A}
    FILE.jsonl has lines of {"prompt": ..., "corrupted": ...}.

    Without answers, the model's own most likely tokens after the clean and after the corrupted
    prompt become answer and wrong answer. Pairs whose tokens do not fit are left out, and counted
    by reason.
    """
    if out is not None and out.suffix.lower() not in FORMATS:
        raise UnknownName("file format of pairs", out.suffix or out.name, FORMATS)
    if file.suffix == ".toml":
        from interp.circuits.tasks.template_file import read_templates

        read_templates(file)  # a wrong file is reported before a model is loaded
    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    from interp.circuits.made_pairs import make_pairs

    with voice.bars(model.name) as tell:
        found = make_pairs(model, file, progress=tell, **options)
    click.echo("\n".join(pair_lines(found)))
    if len(found) < options["n"]:
        voice.note(
            f"{len(found)} of {options['n']} pairs; add words, templates or prompts for more"
        )
    if out is not None:
        found.save(out)
        voice.note(f"{out}: {len(found)} pairs")


def pair_lines(found: MadePairs) -> list[str]:
    """Format the first pairs, the model's success on candidates, and what was left out."""
    share, low, high = found.preferred_share
    gap = found.clean - found.contrast
    lines = [
        f"{len(found)} pairs of {found.name} for {found.model}",
        f"  the model prefers the answer in {found.preferred} of {found.measured} candidates:"
        f" {share:.1%} [{low:.1%}, {high:.1%}]",
        f"  answer minus wrong, logits: {found.clean.mean():.2f} after the clean prompt,"
        f" {found.contrast.mean():.2f} after the corrupted one (gap {gap.mean():.2f})",
    ]
    if found.made["keep"] != "all" or found.made["least_probability"] > 0:
        lines.append("  selected by the model's success: results hold where the model succeeds")
    lines += [f"  left out: {count} ({why})" for why, count in found.dropped.items()]
    for i in range(min(SHOWN, len(found))):
        lines += [
            f"  {found.prompts[i]!r} -> {found.answers[i]!r} (wrong {found.wrong[i]!r})",
            f"    {found.corrupted[i]!r}",
        ]
    return lines
