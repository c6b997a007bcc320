"""Command `interp train probe`: train a linear probe on heads, or apply a saved one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from interp.bundled import usual_task
from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import FROM_0, Spelling
from interp.cli.wrapping import print_text
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model
    from interp.probes.items import ProbeItems

PRONOUN = "stories:pronoun"
PAIRS = 96


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
    example="interp train probe bundled:stories --site z -o probe.safetensors",
)
def probe(
    run: Run,
    model: Model,
    file: Path | None = None,
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
    "rest": ..., "spans": [[start, end, label], ...]}. Without FILE, of bundled:stories: is a person
    of a story a woman or a man, read at the word before the pronoun. Folds are of whole documents.
    Printed are the scores on held-out documents, with intervals, shuffled labels and a control task
    if there are types, and the heads without which the probe is worse. With --out the scores and
    heads are written beside the probe (.safetensors) as .json.

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
    if file is not None:
        items = read_probe_items(file, labelled=held is None)
    elif usual_task(run.sources[0]) is not None:
        items = _pronoun_items(model, options["seed"])
        run.voice.note(f"{len(items.rows)} texts of {PRONOUN}, labelled woman and man")
    else:
        raise OptionError(f"there are no labelled texts for {model.name}; give some as --file FILE")
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


def _pronoun_items(model: Model, seed: int) -> ProbeItems:
    """Return texts about a woman and a man, two to a document; the type is the name."""
    from interp.circuits.tasks import make_contrast
    from interp.probes.items import ProbeItems

    pairs, rows = make_contrast(model, PRONOUN, n=PAIRS, seed=seed), list[dict[str, Any]]()
    seen = set[tuple[int, ...]]()
    both = zip(pairs.clean.ids, pairs.corrupted.ids, pairs.roles, strict=True)
    for at, (*prompts, roles) in enumerate(both):
        if seen.isdisjoint(prompts):
            seen.update(prompts)
            for ids, label in zip(prompts, ("woman", "man"), strict=True):
                item = {"prompt": list(ids), "label": label, "document": f"pair {at}"}
                rows.append(item | {"type": int(ids[roles["person"]])})
    return ProbeItems(tuple(rows), PRONOUN)
