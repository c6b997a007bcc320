"""Command `interp texts influence`: effect of a set of heads on the loss of texts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.causal import parse_heads_option
from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.name_types import METRIC_NAME
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument, texts_option
from interp.cli.stopping import goes_on
from interp.core.errors import OptionError
from interp.core.json_document import rows_text

if TYPE_CHECKING:
    from interp.causal.influence.result import TextScores


@click.command(
    epilog="Example: interp texts influence bundled:induction --file texts.txt -m induction -o "
    "scores.jsonl"
)
@model_argument
@texts_option
@click.option("--heads", metavar="L1H0,...", help="Heads to mask.")
@click.option(
    "-m",
    "--metric",
    type=METRIC_NAME,
    metavar="NAME[:OPTION=VALUE,...]",
    help="Mask the heads that a metric ranks first, on random tokens repeated twice, "
    "instead of --heads.",
)
@click.option(
    "--top",
    default=4,
    show_default=True,
    type=click.IntRange(1),
    help="Number of heads taken from --metric.",
)
@click.option(
    "--kind",
    default="uniform-attention",
    show_default=True,
    type=click.Choice(["uniform-attention", "zero"]),
    help="How a head is masked.",
)
@click.option("--stack", help="Stack of the heads, if a model has several.")
@click.option(
    "--random",
    "n_random",
    default=8,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Number of random sets of as many heads of the same layers; 0 for none.",
)
@click.option(
    "--max-length",
    "context",
    type=click.IntRange(2),
    metavar="N",
    help="Maximum tokens of a text per run; by default the model's context.",
)
@click.option(
    "--long",
    default="truncate",
    show_default=True,
    type=click.Choice(["truncate", "windows"]),
    help="How longer texts are handled.",
)
@click.option(
    "--max-tokens",
    default=4096,
    show_default=True,
    type=click.IntRange(1),
    help="Maximum tokens per forward pass.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random sets.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write rows to this file of JSON lines once all texts are scored; an interrupted command "
    "resumes.",
)
@click.option("--json", "form", flag_value="json", help="Print only a JSON line per text.")
@click.option("--csv", "form", flag_value="csv", help="Print only CSV.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def influence(
    source: str,
    file: Path,
    heads: str | None,
    metric: str | None,
    top: int,
    form: str | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
    seed: int,
    **options: Any,
) -> None:
    """Score each text of FILE by the increase of MODEL's loss without some heads.

    FILE is a .txt or .jsonl file. The relative increase of the loss is the score of
    AttentionInfluence (Hua et al. 2025), which selects data that depends on those heads; z compares
    it with random sets of heads.
    """  # fmt: skip
    if (heads is None) == (metric is None):
        raise OptionError("name the heads with --heads, or a metric that ranks them with --metric")
    from interp.causal import attention_influence

    loading.require_device()
    import_first(imports)
    if options["n_random"] == 1:
        raise OptionError("--random 1 gives no standard deviation; give 2 or more, or 0")
    voice = Voice.of_command(quiet=quiet)
    [(path, name)] = source_labels([source]).items()
    with goes_on(voice, options["out"]), voice.bars(name) as tell:
        model = loading.load(path, name)
        if heads is not None:
            chosen = parse_heads_option(heads)
        else:
            import interp

            if metric is None:
                raise OptionError("no heads to mask; give --heads or --metric")
            best = interp.score(model, metric, null="none", seed=seed).top(top).to_pandas()
            chosen = list(zip(best["layer"].tolist(), best["head"].tolist(), strict=True))
            voice.note("masked: " + ", ".join(f"L{x}H{h}" for x, h in chosen))
        found = attention_influence(model, file, chosen, seed=seed, progress=tell, **options)
    if form is not None:
        click.echo(rows_text(found.wide(), "jsonl" if form == "json" else form), nl=False)
        return
    click.echo("\n".join(text_lines(found)))
    if options["out"] is not None:
        voice.note(f"{len(found)} texts in {options['out']}")


def text_lines(found: TextScores, k: int = 10) -> list[str]:
    """Format the k texts that depend on the heads most, with the meaning of the columns."""
    made, rows = found.settings, list(found.top(k))
    sets = len(made["random_sets"])
    lines = [
        f"{made['model']} without {', '.join(made['heads'])} ({made['kind']}): the first"
        f" {len(rows)} of {len(found)} texts",
        "  rise: increase of the loss per predicted token without these heads, as a share of the "
        "loss",
    ]
    if sets:
        lines.append(
            f"  z: the rise minus its mean over {sets} random sets of as many heads of the same "
            f"layers, in units of their standard deviation"
        )
    names = ("rise", *(["z"] if sets else []), "loss, nats/token", "tokens", "text")
    table = [names, *(_cells(row, bool(sets)) for row in rows)]
    width = [max(len(row[at]) for row in table) for at in range(len(names))]
    for row in table:
        cells = [f"{cell:>{w}}" for cell, w in zip(row[:-1], width[:-1], strict=True)]
        lines.append("  ".join(["", *cells, row[-1]]))
    return lines


def _cells(row: dict[str, Any], compared: bool) -> tuple[str, ...]:
    """Format one text; for one without a score, give the reason."""
    name = str(row["number"] if row["id"] is None else row["id"])
    if math.isnan(row["relative"]):
        name += f": {row['reason']}"
    numbers = [_spelled(row["relative"], "+.3f")]
    numbers += [_spelled(row["z"], "+.1f")] if compared else []
    numbers += [_spelled(row["loss"], ".3f"), str(row["n_scored"])]
    return (*numbers, name)


def _spelled(x: float, how: str) -> str:
    return "none" if math.isnan(x) else format(x, how)
