"""Command `interp attribute tokens`: measures of token importance, and how faithful each is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.coloured import files_option
from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.name_types import ATTRIBUTION_NAMES
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument, text_option
from interp.cli.value_types import PromptFile

if TYPE_CHECKING:
    import pandas as pd

    from interp.attribution.evaluation.result import Faithfulness

LEVEL = 0.05


@click.command(
    epilog="Example: interp attribute tokens gpt2 --text 'The keys are on the' --file texts.txt "
    "--choose 8"
)
@model_argument
@text_option
@click.option(
    "--file",
    type=PromptFile(),
    metavar="FILE",
    help="File with one text per line, on which the measures are judged; without --text its first "
    "judged text is shown.",
)
@click.option(
    "-m",
    "--method",
    "methods",
    type=ATTRIBUTION_NAMES,
    metavar="A,B:OPTION=VALUE,...",
    help="Methods of `interp list methods`, or the group token_importance; by default this "
    "group and "
    "four more measures of attention.",
)
@click.option(
    "-t",
    "--target",
    metavar="TARGET",
    help="Number on which the effect is measured, as for `interp attribute`; by default the "
    "model's top prediction.",
)
@click.option(
    "--how",
    default="hide",
    show_default=True,
    metavar="hide|delete|mask|mean|ID",
    help="How a token is removed: hide hides it from the attention of all other tokens.",
)
@click.option(
    "--choose",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Choose the head of `ditto` on the first N texts of FILE, and judge on the others.",
)
@click.option("--batch-size", default=16, show_default=True, type=click.IntRange(1),
    help="Number of inputs per forward pass.")  # fmt: skip
@files_option((".json", ".csv"))
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def tokens(
    text: str | None,
    source: str,
    file: Path | None,
    methods: str | None,
    target: str | None,
    how: str,
    choose: int,
    batch_size: int,
    out: dict[str, Path],
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Rank the tokens of a text by published measures of importance, and judge the measures.

    Faithfulness is the rank correlation of a measure's scores with the change of the output when
    each token is hidden, over the texts of FILE: mean, 95 % interval, and p against random scores
    (paired, Holm-corrected over measures).
    """
    from interp.core.errors import OptionError

    if text is None and file is None:
        raise OptionError("give --text, or --file with one text per line, or both")
    if text is not None and not text.strip():
        raise OptionError("the text is empty; give at least one word")
    from interp.attribution.evaluation.importance import COMPARED, compare_importance, with_head
    from interp.attribution.evaluation.run import read_texts, resolve
    from interp.attribution.named import choose_methods

    chosen = choose_methods([methods] if methods else COMPARED)
    texts = read_texts(file) if file is not None else [str(text)]
    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    with voice.bars(model.name) as tell:
        found = compare_importance(
            model, texts, chosen, target, how=how, choose=choose, batch_size=batch_size, tell=tell
        )
    head = found.provenance.get("chosen_head", "")
    shown = text if text is not None else found.texts[0]
    every = [shown, *(t for t in texts if t != shown)]
    explained = resolve(model, every, target)[0]
    used = [with_head(one, head) for one in chosen] if head else chosen
    frame = token_table(model, shown, explained, used, how, batch_size)
    click.echo(judged_text(found, how))
    click.echo(ranks_text(frame, shown))
    if len(found.texts) < 2:
        voice.note("one text has no interval: give more texts with --file")
    if text is not None and text in found.texts:
        voice.note("the text is among the texts on which the measures are judged")
    if head:
        voice.note(f"ditto: {head} was chosen on the first {choose} text(s), which are not judged")
    write_tables(found, frame, out)
    for method, at, error in found.failures:
        voice.error(f"text {at + 1}, {method}: {error}")
    if found.failures:
        click.get_current_context().exit(1)


def token_table(
    model: Any, text: str, target: Any, methods: Any, how: str, batch_size: int
) -> pd.DataFrame:
    """Return one row per token: position, token, special, a column per method, and the effect."""
    import numpy as np
    import pandas as pd

    from interp.attribution.evaluation.removal import one_by_one, values_without
    from interp.attribution.example import Example
    from interp.core.errors import InterpError

    example = Example(model, text, target)
    frame = pd.DataFrame(
        {"position": range(len(example)), "token": example.tokens, "special": example.special}
    )
    for method in methods:
        try:
            frame[method.label] = method.of(example).scores
        except InterpError:  # named with the failures of the judged texts
            frame[method.label] = math.nan
    where = np.flatnonzero(~example.special)
    gone = one_by_one(where.tolist(), len(example))
    effect = np.full(len(example), math.nan)
    effect[where] = example.value - values_without(example, gone, how, batch_size)
    return frame.assign(effect=effect)


def judged_text(found: Faithfulness, how: str) -> str:
    """Format the faithfulness of each measure, the best first, with a letter for each."""
    from interp.core.statistics import least_sign_flip_p

    frame: Any = found.interval()
    frame = frame[frame["metric"] == "spearman"]
    against = found.against_random()
    enough = len(against) * least_sign_flip_p(len(found.texts)) < LEVEL
    letters = _letters(found.methods)
    width = max(map(len, found.methods))
    lines = [
        f"faithfulness: rank correlation with the effect (how={how}), {len(found.texts)} text(s)"
    ]
    for row in frame.to_dict("records"):
        method, mean = str(row["method"]), float(row["score"])
        ends = f" [{row['low']:+.2f}, {row['high']:+.2f}]" if not math.isnan(row["low"]) else ""
        p = against.get(method)
        says = "random order" if method == "random_scores" else ""
        says = "the effect itself" if method.startswith("occlusion") else says
        if not says and p is not None and enough:
            says = f"p {p:.2g} against random"
        fewer = f" ({row['n']} texts)" if row["n"] != len(found.texts) else ""
        mark = letters.get(method, " ")
        lines.append(f"  {mark} {method:<{width}}  {mean:+.3f}{ends}{fewer}  {says}".rstrip())
    if len(found.texts) > 1 and not enough:
        lines.append("  too few texts for a significant difference from random order")
    lost = [m for m in found.methods if m not in set(frame["method"])]
    lines += [f"  {letters.get(m, ' ')} {m:<{width}}  not measured" for m in lost]
    return "\n".join([*lines, ""])


def ranks_text(frame: pd.DataFrame, text: str) -> str:
    """Format the rank of each token by each measure; 1 is the most important."""
    from interp.report.tokens import shown

    measures = [c for c in frame.columns if c not in ("position", "token", "special", "effect")]
    letters = _letters(measures)
    real: Any = frame[~frame["special"]]
    ranks: Any = real[[*measures, "effect"]].abs().rank(ascending=False, method="min")
    width = max([len("token"), *(len(shown(t)) for t in real["token"])])
    head = "".join(f"{letters[m]:>5}" for m in measures)
    lines = [f"rank of each token, 1 is the most important: {text[:60]}"]
    lines.append(f"  {'':>4}  {'token':<{width}}{head}     effect (rank)")
    for at, row in ranks.iterrows():
        cells = "".join(f"{'-' if math.isnan(row[m]) else int(row[m]):>5}" for m in measures)
        place, token, effect = real.loc[at, ["position", "token", "effect"]]
        end = f"{effect:>+12.3g} ({int(row['effect'])})"
        lines.append(f"  {place:>4}  {shown(token):<{width}}{cells}{end}")
    return "\n".join([*lines, ""])


def write_tables(found: Faithfulness, frame: pd.DataFrame, out: Mapping[str, Path]) -> None:
    """Write the requested files, each atomically."""
    import json

    from interp.core.files import write_atomically

    if csv := out.get(".csv"):
        write_atomically(csv, frame.to_csv(index=False).encode())
    if json_file := out.get(".json"):
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        whole = {"tokens": rows, "against_random": found.against_random(), **found.to_dict()}
        write_atomically(json_file, (json.dumps(whole, indent=1, default=str) + "\n").encode())


def _letters(methods: list[str]) -> dict[str, str]:
    """Return a letter for each measure that is not a baseline."""
    named = [m for m in methods if m not in ("random_scores", "input_norm")]
    named = [m for m in named if not m.startswith("occlusion")]
    return {m: chr(ord("a") + i % 26) * (1 + i // 26) for i, m in enumerate(named)} | {
        m: "-" for m in methods if m not in named
    }
