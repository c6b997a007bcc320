"""Command `interp importance verify`: causal check of every score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp.cli.making import GAME, command
from interp.cli.run import Run
from interp.cli.vocabulary import FROM_1, Spelling
from interp.cli.written import as_given

if TYPE_CHECKING:
    from interp.causal.task import Task
    from interp.heads.causal_check.result import Confirmation
    from interp.model.model import Model


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


def _write(run: Run) -> None:
    """Write verify.csv, verify.json and a page of all models."""
    import pandas as pd

    from interp.core.files import write_atomically
    from interp.report.checks import check_page

    if run.out is None:
        return
    documents = [json.loads(f.to_json()) for _, [f] in run.results]
    documents = with_others(documents, run.out / "verify.json")
    rows = [row | {"heads": " ".join(row["heads"])} for d in documents for row in d["checks"]]
    frame = pd.DataFrame(rows)
    unknown = frame.columns[frame.isna().all()]
    frame[unknown] = frame[unknown].astype(float)
    contents = {
        "verify.csv": frame.to_csv(index=False),
        "verify.json": json.dumps(documents, indent=1, ensure_ascii=False) + "\n",
        "verify.html": check_page(frame, [d["provenance"] for d in documents], as_given()),
    }
    for name, content in contents.items():
        write_atomically(run.out / name, content.encode())
    run.voice.note(f"{run.out}: {', '.join(contents)}")


@command(
    also=GAME,
    options={"top": Spelling(type=FROM_1), "n_random": Spelling(type=FROM_1)},
    after=_write,
    example="interp importance verify bundled:induction -m induction --top 2",
)
def verify(
    run: Run,
    model: Model,
    metrics: list[str],
    task: Task,
    *,
    top: int | None = None,
    by: Literal["score", "lowest", "null"] = "score",
    n_random: int = 60,
    progress: Any = None,
    announce: Any = None,
    **game: Any,
) -> Confirmation:
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

    Args:
        run: the run.
        model: the model.
        metrics: metric whose top heads are checked, or several separated by commas; repeatable.
        task: the task.
        top: number of heads to check, the first by --by; by default all heads with the role that
            the metric decides, or three if no head has it.
        by: order of the heads: the highest first, the lowest, or the farthest above the null.
        n_random: number of random sets of as many heads in the same layers, and of sets of any
            layers; all of them if there are fewer.
        progress: see `Progress`.
        announce: called with the estimated time and memory before a run.
        game: of `Game`.
    """
    from interp.circuits.head_checks import confirm
    from interp.core.registry import METRICS

    confirmed = confirm(
        model, [METRICS.parse(name) for name in metrics], k=top,
        task=task if run.stated("task") else None, by=by, n_random=n_random,
        n=run.values["n"], max_length=run.values["max_length"],
        progress=progress, announce=announce,
        **game,
    )  # fmt: skip
    if run.form is not None:  # rows have no column for it
        for metric, note in confirmed.notes.items():
            run.voice.note(f"{model.name}: {metric}: {note}")
    return confirmed
