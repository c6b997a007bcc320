"""Numbers of lm-evaluation-harness with and without heads, and their paired differences."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.causal.harness.adapter import HarnessRun
from interp.causal.random_sets import random_sets
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.model.content import model_provenance
from interp.model.edits import zero
from interp.model.head_arguments import heads_with_stack
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.edits import Edit
    from interp.model.model import Model

OWN, RANDOM = "model", "random heads"
Values = dict[tuple[str, str], tuple[Float[np.ndarray, " document"], float]]


@takes_model
def harness_scores(
    model: Model,
    tasks: Sequence[str],
    heads: Any = None,
    *,
    edits: Mapping[str, Sequence[Edit]] | None = None,
    n_shot: int | None = None,
    n: int | None = None,
    n_random: int = 4,
    batch_size: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Evaluate a model by lm-evaluation-harness, with and without heads.

    Args:
        model: the model.
        tasks: tasks of the harness by name, its .yaml files, and files of one's own: .jsonl with
            prompt, answer and wrong, or with sentence_good and sentence_bad; .txt for perplexity.
        heads: heads whose output is zero in the run `without`.
        edits: further runs by name, each with the edits under which it runs.
        n_shot: examples in front of each document; by default those of each task.
        n: first documents of each task; by default all.
        n_random: random sets of as many heads of the same layers, the null of `without`.
        batch_size: documents per forward pass; padding does not change causal models, but a mean
            over the batch.
        seed: seed of the examples and of the random heads.
        progress: called after each run.

    Reference: Gao et al., "The Language Model Evaluation Harness".

    Returns:
        A row per task, metric and run: score, the mean over the n documents, with sem; reported,
        the number that the harness reports. Then a row per run and task named `RUN - model`: the
        mean paired difference of its documents from those of the unedited model, with sem, and for
        `without` the same of random heads as null. Perplexities are per document and in nats per
        word or byte in score, as the harness forms them in reported. `per_prompt` holds the
        documents `[row, document]`, NaN beyond the end of a shorter task.

    Raises:
        OptionError: the harness is not installed, a task is not known or needs the network, or a
            head does not exist.
        PromptError: the model has no tokenizer, or a task file cannot be read.

    Unit: that of each metric.

    Cost: One evaluation per run and random set.

    Null: random sets of as many heads of the same layers.

    Not for: saying what a head does: a task that falls may fall for every reason.
    """
    runs: dict[str, Sequence[Edit]] = {OWN: ()}
    chosen: tuple[Head, ...] = ()
    if heads is not None:
        chosen = heads_with_stack(model.whole_sites, heads, model.name)
        runs["without"] = [zero(chosen)]
    for name, given in (edits or {}).items():
        if name in (OWN, "without", RANDOM):
            raise OptionError(f"edits {name!r}: this name is taken; choose another")
        runs[name] = given
    sets = random_sets(model, chosen, n_random, seed)
    harness = HarnessRun(model, tasks, n_shot=n_shot, n=n, batch_size=batch_size, seed=seed)
    report, total = progress or silent, len(runs) + len(sets)
    by_run: dict[str, Values] = {}
    read = hashlib.sha256()
    for done, (name, given) in enumerate(runs.items(), 1):
        results = harness.results(given)
        if name == OWN:
            each = (s for samples in results["samples"].values() for s in samples)
            read.update("".join(s["doc_hash"] + s["prompt_hash"] for s in each).encode())
        by_run[name] = document_values(results)
        report("harness", done, total)
    drawn = []
    for done, given in enumerate(sets, len(runs) + 1):
        drawn.append(document_values(harness.results([zero(given)])))
        report("harness", done, total)
    if drawn:
        unedited = by_run[OWN]
        by_run[RANDOM] = {
            k: (np.mean([d[k][0] for d in drawn], 0), float(np.mean([d[k][1] for d in drawn])))
            for k in unedited
        }
    options = {
        "n_shot": n_shot,
        "n": n,
        "batch_size": batch_size,
        "seed": seed,
        "n_random": n_random,
    }
    provenance = model_provenance(model) | {
        "prompts": ", ".join(tasks),
        "prompts_hash": read.hexdigest(),
        "tasks": list(tasks),
        "without": [str(h) for h in chosen],
        "runs": {name: [e.name for e in given] for name, given in runs.items()},
        "lm_eval": str(getattr(harness.package, "__version__", "")),
        "options": options,
        "made_by": "interp.causal.harness_scores",
    }
    return run_rows(by_run, provenance)


def document_values(results: Mapping[str, Any]) -> Values:
    """Return the value of each document by task and metric, and the number of the harness.

    Values that are a sum of log-probabilities with a number of units, as of perplexity, become nats
    per unit; NaN where a metric has no value per document.
    """
    by_metric: Values = {}
    for task, samples in results["samples"].items():
        for name in dict.fromkeys(m for sample in samples for m in sample["metrics"]):
            reported = [
                x
                for key, x in results["results"][task].items()
                if key.partition(",")[0] == name and isinstance(x, (int, float))
            ]
            values = np.array([_value(sample.get(name)) for sample in samples])
            by_metric[task, name] = values, float(reported[0]) if reported else np.nan
    return by_metric


def _value(x: Any) -> float:
    if isinstance(x, (bool, int, float, np.number)):
        return float(x)
    if isinstance(x, (tuple, list)) and len(x) == 2 and all(isinstance(i, (int, float)) for i in x):
        return -float(x[0]) / float(x[1])
    return np.nan


UNITS = {
    **dict.fromkeys(("acc", "acc_norm", "exact_match"), "share of documents"),
    "word_perplexity": "nats per word",
    "byte_perplexity": "nats per byte",
    "bits_per_byte": "nats per byte",
}
"""Unit of the value of a document, by metric; the harness states none."""


def run_rows(found: Mapping[str, Values], made: Mapping[str, Any]) -> ResultRows:
    """Return the rows of runs, the first of which is the unedited model, and their differences."""
    rows: list[dict[str, Any]] = []
    values: list[np.ndarray] = []

    def add(task: str, metric: str, run: str, x: np.ndarray, reported: float, null: float) -> None:
        known = x[np.isfinite(x)]
        sem = standard_error(known[None])[0] if len(known) > 1 else np.nan
        score = known.mean() if len(known) else np.nan
        rows.append(
            {
                "task": task,
                "metric": metric,
                "run": run,
                "score": score,
                "sem": sem,
                "n": len(known),
                "null": null,
                "reported": reported,
            }
        )
        values.append(x)

    for task, metric in found[OWN]:
        unedited = found[OWN][task, metric][0]
        for run, mine in found.items():
            x, reported = mine[task, metric]
            add(task, metric, run, x, reported, np.nan)
        for run, mine in found.items():
            if run == OWN:
                continue
            null = np.nan
            if run == "without" and RANDOM in found:
                null = float(np.nanmean(found[RANDOM][task, metric][0] - unedited))
            add(task, metric, f"{run} - {OWN}", mine[task, metric][0] - unedited, np.nan, null)
    width = max(map(len, values))
    each = np.full((len(values), width), np.nan)
    for row, x in enumerate(values):
        each[row, : len(x)] = x
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["unit"] = [UNITS.get(metric, f"value of {metric}") for metric in columns["metric"]]
    return ResultRows("HarnessScores", columns, ("task", "run"), made, {}, each)
