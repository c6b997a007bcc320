"""Command `interp train probe`: train a linear probe on heads, or apply a saved one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import FROM_0, Spelling
from interp.cli.wrapping import print_text
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model


def _position(text: str) -> int | str:
    if text in ("last", "mean"):
        return text
    try:
        return int(text)
    except ValueError as error:
        raise OptionError(f"--position {text!r}: give last, mean or a number") from error


@command(
    also={"interp.probes.training:train_probe": ("seed", "progress")},
    options={
        "file": Spelling(
            type=click.Path(path_type=Path), help="File of labelled prompts (.jsonl)."
        ),
        "position": Spelling(
            type=click.STRING,
            metavar="last|mean|N",
            read=_position,
            help="Position at which z is read.",
        ),
        "metrics": Spelling(default=()),
        "n_random": Spelling(type=FROM_0),
        "load": Spelling(type=click.Path(path_type=Path, dir_okay=False), metavar="PROBE"),
    },
    out="own",
    text="interp.report.printed.scores:probe_text",
    example="interp train probe gpt2 --file answers.jsonl --site z -o probe.safetensors",
)
def probe(
    run: Run,
    model: Model,
    file: Path,
    *,
    read: Literal["z", "metrics", "lookback", "last-row"] = "z",
    position: str = "last",
    metrics: Any = None,
    n_random: int = 99,
    load: Path | None = None,
    other_weights: bool = False,
    **options: Any,
) -> ResultRows | None:
    """Train a linear probe on the heads of MODEL, for the labels of FILE.

    FILE is .jsonl: {"prompt": ..., "label": ..., "document": ...} per line, or {"context": ...,
    "rest": ..., "spans": [[start, end, label], ...]}. Folds are of whole documents. Printed are the
    scores on held-out documents, with intervals, shuffled labels and a control task if there are
    types, and the heads without which the probe is worse. With --out the scores and heads are
    written beside the probe (.safetensors) as .json.

    Args:
        file: the labelled prompts.
        read: what is read of each head: its output, statistics of its pattern, the Lookback ratio
            of a response, or the attention of the last token on parts of a context (Sentinel).
        position: position at which z is read.
        metrics: metrics to read, with --site metrics.
        n_random: number of times the labels are shuffled, for p and the null.
        load: apply this saved probe to FILE instead of training: a line of JSON per item.
        other_weights: with --load: accept a model of the same heads whose weights differ.
    """
    from interp.probes import HeadProbe, read_probe_items, train_probe

    held = None if load is None else HeadProbe.load(load)
    if other_weights and held is None:
        raise OptionError("--set other_weights is for --load; give a saved probe")
    items = read_probe_items(file, labelled=held is None)
    features, labels, documents, types = items.features(
        model, read, position=position, metrics=metrics or None
    )
    if held is not None:
        probabilities = held.apply(features, other_weights=other_weights)
        for name, x in zip(documents, probabilities.tolist(), strict=True):
            print_text(json.dumps({"document": name, f"p({held.classes[1]})": x}))
        return None
    result = train_probe(
        features, labels, documents, types=types, n_permutations=n_random, **options
    )
    if run.out is not None:
        result.probe.save(run.out)
        result.save(run.out.with_suffix(".json"))
        run.voice.note(f"{run.out}, {run.out.with_suffix('.json')}")
    return result
