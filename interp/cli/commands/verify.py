"""Command `interp verify`: causal check of every score."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.causal import Causal, ModelOutcome, Tell, causal_options
from interp.cli.context import COMMAND
from interp.cli.name_types import METRIC_NAMES, MODEL_NAME
from interp.cli.wrong_models import checked_sources
from interp.core.declaration import split_names

if TYPE_CHECKING:
    from interp.causal.task import Task
    from interp.heads.causal_check.result import Confirmation
    from interp.model.model import Model

GROUP = "Causal"


@click.command(epilog="Example: interp verify bundled:induction -m induction --top 2")
@click.argument(
    "sources",
    nargs=-1,
    required=True,
    metavar="MODEL...",
    type=MODEL_NAME,
    callback=checked_sources,
)
@click.option(
    "-m",
    "--metric",
    "metrics",
    type=METRIC_NAMES,
    multiple=True,
    required=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="Metric whose top heads are checked, or several separated by commas; repeatable.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    help="Number of heads to check, the first by --by; by default all heads with the role that the "
    "metric decides, or three if no head has it.",
)
@click.option(
    "--by",
    default="score",
    show_default=True,
    type=click.Choice(["score", "lowest", "null"]),
    help="Order of the heads: the highest first, the lowest, or the farthest above the null.",
)
@click.option(
    "--random",
    "n_random",
    default=60,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Number of random sets of as many heads in the same layers, and of sets of any layers; "
    "all of them if there are fewer.",
)
@causal_options
def verify(
    causal: Causal,
    sources: tuple[str, ...],
    metrics: tuple[str, ...],
    top: int | None,
    by: str,
    n_random: int,
) -> None:
    """Ablate the heads of a score in each MODEL, beside random heads of the same layers.

    A score shows where heads attend; this tests whether they have an effect. All heads with the
    role are ablated together, then each alone. It measures the task associated with the metric (or
    --task), the same answers asked in another form, and the loss on plain text. The last line of a
    metric says what was shown. A ratio of 1 and a large p mean that these heads matter no more than
    others; random heads of any layers are reported as well, and how many of them hold the same
    role. If a check is not conclusive, because the model does the task no better than
    chance or because too few sets exist for a small p, this is reported. Retrieval heads are
    checked on needles other than those scored, in the task of the score, unless the model answers
    none of them.
    """
    from interp.core.registry import METRICS

    asked = [METRICS.parse(name) for text in metrics for name in split_names(text)]
    context = click.get_current_context()
    source = context.get_parameter_source("task")
    own = source is None or source.name == "DEFAULT"
    found: list[Confirmation] = []

    def work(model: Model, task: Task, game: dict[str, Any], tell: Tell) -> ModelOutcome:
        from interp.circuits.head_checks import confirm

        confirmed = confirm(
            model, asked, k=top, task=None if own else task, by=by, n_random=n_random,
            n=causal.n, longest=causal.longest, progress=tell, announce=causal.announce(model),
            **game,
        )  # fmt: skip
        found.append(confirmed)
        if causal.form is not None:  # rows have no column for it
            for metric, note in confirmed.notes.items():
                causal.voice.note(f"{model.name}: {metric}: {note}")
        return ModelOutcome(text=verify_text(confirmed), frame=confirmed.wide())

    code = causal.run(sources, work)
    if causal.out is not None and found and code in (0, 1):
        _write(causal, causal.out, found)
    context.exit(code)


def verify_text(confirmed: Confirmation) -> str:
    """Format one model: the heads of each score, then the result of each task."""
    lines = [confirmed.checks[0].model]
    seen, last = None, {check.metric: check for check in confirmed}
    for check in confirmed:
        if check.metric != seen:
            lines.append(f"  {check.metric}: {', '.join(check.heads)}")
        seen = check.metric
        first, *rest = [*check.parts(), *check.doubts()]
        lines.append(f"    {check.purpose:<8}  {first}")
        lines += [f"              {line}" for line in rest]
        if check is last[check.metric]:
            lines.append(f"    {confirmed.conclusions[check.metric].sentence}")
    lines += [
        f"  {m}: {confirmed.conclusions[m].sentence}" for m in confirmed.notes if m not in last
    ]
    return "\n".join([*lines, ""])


def with_others(documents: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """Return documents followed by those of other models, scores and tasks in a file.

    Models with the same name but other weights get distinct names; a damaged file is moved aside.
    """
    import json

    from interp.core.files import read_bytes, set_aside

    others: list[dict[str, Any]] = []
    if path.exists():
        try:
            others = json.loads(read_bytes(path))
            if not all("conclusions" in d for d in others):
                raise ValueError("its rows are of another version of interp")
            taken = {_of(d, row) for d in documents for row in d["checks"]}
            others = [
                d | {"checks": [row for row in d["checks"] if _of(d, row) not in taken]}
                for d in others
            ]
        except (ValueError, KeyError, TypeError) as error:
            set_aside(path, error)
            others = []
    every = [d for d in [*documents, *others] if d["checks"]]
    weights: dict[str, set[str]] = {}
    for d in every:
        weights.setdefault(_of(d, d["checks"][0])[0], set()).add(_weights(d))
    for d in every:
        name = _of(d, d["checks"][0])[0]
        if len(weights[name]) > 1:
            d["checks"] = [row | {"model": f"{name}@{_weights(d)}"} for row in d["checks"]]
    return every


def _of(document: dict[str, Any], row: dict[str, Any]) -> tuple[str, ...]:
    """Return the identity of a row: the model by name and weights, the score, and the task."""
    name = str(row["model"]).removesuffix(f"@{_weights(document)}")
    return name, _weights(document), row["metric"], row["purpose"], row["task"]


def _weights(document: dict[str, Any]) -> str:
    return str(document["provenance"].get("content_hash"))[:8]


def _write(causal: Causal, folder: Path, found: list[Confirmation]) -> None:
    """Write verify.csv, verify.json and a page of all models."""
    import json

    import pandas as pd

    from interp.core.files import write_atomically
    from interp.report.checks import check_page

    command = shlex.join(["interp", *click.get_current_context().meta[COMMAND]])
    documents = [json.loads(f.to_json()) for f in found]
    documents = with_others(documents, folder / "verify.json")
    rows = [row | {"heads": " ".join(row["heads"])} for d in documents for row in d["checks"]]
    frame = pd.DataFrame(rows)
    contents = {
        "verify.csv": frame.to_csv(index=False),
        "verify.json": json.dumps(documents, indent=1, ensure_ascii=False) + "\n",
        "verify.html": check_page(frame, [d["provenance"] for d in documents], command),
    }
    for name, content in contents.items():
        write_atomically(folder / name, content.encode())
    causal.voice.note(f"{folder}: {', '.join(contents)}")
