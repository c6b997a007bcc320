"""Command `interp train probe`: train a linear probe on heads, or apply a saved one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument
from interp.core.errors import OptionError


@click.command(
    epilog="Example: interp train probe gpt2 --file answers.jsonl --read z -o probe.safetensors"
)
@model_argument
@click.option("--file", required=True, type=click.Path(path_type=Path), metavar="FILE",
    help="File of labelled prompts (.jsonl).")  # fmt: skip
@click.option(
    "--read", "kind", default="z", show_default=True,
    type=click.Choice(["z", "metrics", "lookback", "last-row"]),
    help="What is read of each head: its output, statistics of its pattern, the Lookback ratio of "
    "a response, or the attention of the last token on parts of a context (Sentinel).",
)  # fmt: skip
@click.option(
    "--position", default="last", show_default=True, metavar="last|mean|N",
    help="Position at which z is read.",
)  # fmt: skip
@click.option(
    "-m", "--metric", "metrics", metavar="NAME,...", help="Metrics to read, with --read metrics."
)
@click.option(
    "--folds", default=5, show_default=True, type=click.IntRange(2),
    help="Number of folds; the items of a document are in one fold.",
)  # fmt: skip
@click.option(
    "--strength", default=1.0, show_default=True, type=float,
    help="Inverse of the penalty on squared weights.",
)  # fmt: skip
@click.option(
    "--random", "permutations", default=99, show_default=True, type=click.IntRange(0),
    help="Number of times the labels are shuffled, for p and the null.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of folds and shuffled labels.")
@click.option("--top", default=5, show_default=True, type=click.IntRange(0), metavar="K",
              help="Number of heads to list.")  # fmt: skip
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="File for the probe (.safetensors); its scores and heads are written beside it as .json.",
)  # fmt: skip
@click.option(
    "--apply", "saved", type=click.Path(path_type=Path, dir_okay=False), metavar="PROBE",
    help="Apply this saved probe to FILE instead of training: a line of JSON per item.",
)  # fmt: skip
@click.option(
    "--other-weights", is_flag=True,
    help="With --apply: accept a model of the same heads whose weights differ.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def probe(
    file: Path,
    source: str,
    kind: str,
    position: str,
    metrics: str | None,
    folds: int,
    strength: float,
    permutations: int,
    seed: int,
    top: int,
    out: Path | None,
    saved: Path | None,
    other_weights: bool,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Train a linear probe on the heads of MODEL, for the labels of FILE.

    FILE is .jsonl: {"prompt": ..., "label": ..., "document": ...} per line, or {"context": ...,
    "rest": ..., "spans": [[start, end, label], ...]}. Folds are of whole documents. Printed are the
    scores on held-out documents, with intervals, shuffled labels and a control task if there are
    types, and the heads without which the probe is worse.
    """
    from interp.core.declaration import split_names
    from interp.probes import HeadProbe, read_probe_items, train_probe

    held = None if saved is None else HeadProbe.load(saved)
    if other_weights and held is None:
        raise OptionError("--other-weights is for --apply; give a saved probe")
    items = read_probe_items(file, labelled=held is None)
    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    asked = None if metrics is None else split_names(metrics)
    features, labels, documents, types = items.features(
        model, kind, position=_position(position), metrics=asked
    )
    if held is not None:
        found = held.apply(features, other_weights=other_weights)
        for name, x in zip(documents, found.tolist(), strict=True):
            click.echo(json.dumps({"document": name, f"p({held.classes[1]})": x}))
        return
    with voice.bars(model.name) as tell:
        result = train_probe(
            features, labels, documents, types=types, folds=folds, strength=strength,
            permutations=permutations, seed=seed, progress=tell,
        )  # fmt: skip
    click.echo(repr(result))
    if top:
        from interp.cli.printing import top_heads

        click.echo(top_heads(result.table, top))
    if out is not None:
        result.probe.save(out)
        result.save(out.with_suffix(".json"))
        voice.note(f"{out}, {out.with_suffix('.json')}")


def _position(text: str) -> int | str:
    if text in ("last", "mean"):
        return text
    try:
        return int(text)
    except ValueError as error:
        raise OptionError(f"--position {text!r}: give last, mean or a number") from error
