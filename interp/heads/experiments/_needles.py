"""Shared parts of the needle experiments: instances for their options, and notes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from interp.core.errors import OptionError
from interp.heads.needle.choosing import TriedTask, best_task, try_tasks
from interp.heads.needle.copying import CopyPaste
from interp.heads.needle.families import FAMILIES, family_instances
from interp.heads.needle.ids import ids_instances
from interp.heads.needle.instance import Instance, NeedleOptions, even_depths, evenly
from interp.heads.needle.sentences import sentence_instances
from interp.heads.needle.task_file import read_task
from interp.heads.needle.text import text_instances
from interp.heads.trials import Trials

if TYPE_CHECKING:
    from torch import Tensor

    from interp.model.calls.sites import Site
    from interp.model.model import Model

ONE_NEEDLE = ("single_key", "many_keys")  # families whose sources stand together
COPIED = (*ONE_NEEDLE, "many_values", "variable_tracking")  # families that are copied literally
OF_SENTENCES = {"completion": False, "question": True}  # True if a question is asked


def instances_of(
    model: Model, seed: int, needle: NeedleOptions, *, reads: Collection[str] = ONE_NEEDLE
) -> list[Instance]:
    """Return the instances that the options describe.

    `reads` are the families whose sources the metric can read.
    """
    task, needles = needle.task, needle.needles
    if needles < 1:
        raise OptionError(f"needles={needles}: there must be at least 1")
    lengths = evenly(needle.min_length, needle.max_length, needle.lengths)
    about: dict[str, Any] = {"lengths": lengths, "depths": even_depths(needle.depths)}
    answered = {"needles": needles, "answer": needle.answer, "seed": seed}
    if task == "ids":
        return ids_instances(model, **answered, **about)
    if task in FAMILIES:
        if task not in reads:
            raise OptionError(
                f"task={task} cannot be read by this metric, only {', '.join(reads)}: sources of "
                "its answer stand apart, or even attention finds them; use written_retrieval, "
                "which reads every family"
            )
        return family_instances(model, task, **answered, **about)
    if task in OF_SENTENCES:
        asked = OF_SENTENCES[task]
        return sentence_instances(model, asked=asked, needles=needles, seed=seed, **about)
    if not task.endswith(".jsonl"):
        raise OptionError(
            f"task={task!r} is not known; use auto, ids, "
            f"{', '.join((*OF_SENTENCES, *FAMILIES))} or a .jsonl "
            f"file of needles"
        )
    texts, haystack = read_task(task)
    return text_instances(model, texts[:needles], haystack, **about)


def chosen_task(
    model: Model, seed: int, max_length: int, answer: int
) -> tuple[str | None, list[TriedTask]]:
    """Return the built-in task that the model answers best, and its results on each.

    The tasks are tried on separate needles, so that the choice does not depend on the scored
    instances. The task is None if the model answers no instance of any task.
    """
    tasks = ["ids", *([] if model.tokenizer is None else OF_SENTENCES)]
    few = NeedleOptions("", 4, max_length, max_length, 1, 2, answer)
    tried = try_tasks(
        model,
        {
            task: lambda task=task: instances_of(model, seed + 1, replace(few, task=task))
            for task in tasks
        },
    )
    best = best_task(tried)
    return None if best is None else best.task, tried


def asked_instances(
    model: Model, seed: int, needle: NeedleOptions, *, reads: Collection[str] = ONE_NEEDLE
) -> tuple[str, list[Instance], list[TriedTask]]:
    """Return the task, its instances, and the tasks that were tried to choose it.

    The task `auto` is the one that the model answers best, or `ids` if it answers none.
    """
    tried: list[TriedTask] = []
    if needle.task == "auto":
        chosen, tried = chosen_task(model, seed, needle.max_length, needle.answer)
        needle = replace(needle, task=chosen or "ids")
    return needle.task, instances_of(model, seed, needle, reads=reads), tried


def instance_trials(
    values: Mapping[Site, Tensor],
    null: Mapping[Site, Tensor] | None,
    null_kind: str,
    task: str,
    instances: Sequence[Instance],
    tried: Sequence[TriedTask],
) -> Trials:
    """Return scores of instances, also of those that the model cannot answer, with their notes."""
    notes = {"instances": f"{len(instances)}: {len({x.needle for x in instances})} needles"}
    headline = f"task {task}"
    if tried:
        notes["tasks"] = needle_notes(tried)
        listed = ", ".join(map(str, tried))
        if any(t.answered for t in tried):
            headline += f", chosen as answered best ({listed})"
        else:
            headline += f"; the model answers none ({listed})"
    clusters = [f"needle {x.needle}" for x in instances]
    return Trials(values, null, null_kind, notes, {"task": task}, headline, clusters)


def needle_notes(tried: Sequence[TriedTask]) -> str:
    """Return the model's results on each task that was tried."""
    return (
        f"answered of those tried, with the needle and not without it: {', '.join(map(str, tried))}"
    )


def needle_report(tried: CopyPaste, counted: CopyPaste) -> dict[str, Any]:
    """Return the task and the model's results on it."""
    right = tried.right
    whole = int((right >= 1).sum())
    lengths = sorted({x.length for x in tried.instances})
    needles = len({x.needle for x in tried.instances})
    depths = len({x.depth for x in tried.instances})
    return {
        "instances": f"{len(right)}: {needles} needles, prompts of "
        f"{', '.join(map(str, lengths))} tokens, {depths} depths",
        "answered": f"{whole} of {len(right)} instances completely, {float(right.mean()):.2f} of "
        f"the answers' tokens",
        "counted": f"{len(counted.instances)} of {len(right)} instances",
    }


def answered(task: str, tried: CopyPaste, chosen: bool) -> str:
    """Describe the scored task and the number of instances that the model answered."""
    right = int((tried.right >= 1).sum())
    how = ", chosen as the one answered best" if chosen else ""
    none = "; the scores show attention only, the model retrieves nothing" if right == 0 else ""
    return f"task {task}{how}; the model answers {right} of {len(tried.right)} instances{none}"


def unscored(model: Model, tried: Sequence[TriedTask]) -> Trials:
    """Return a result without scores, for a model that answers no task."""
    values = {
        site: torch.full((1, site.n_heads), torch.nan, dtype=torch.float64) for site in model.sites
    }
    why = (
        f"no scores: the model answers no needle ({', '.join(map(str, tried))}); name a task, such "
        "as task=ids, to score attention alone"
    )
    return Trials(values, values, "none", {"tasks": needle_notes(tried)}, headline=why)
