"""Steering in doses: a task, and the loss on plain text, against how far heads are turned up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.random_sets import random_sets
from interp.causal.steering.function_vectors import Outputs, by_length
from interp.causal.steering.result import dose_rows
from interp.causal.text_tasks import plain_task
from interp.core.errors import OptionError, UnknownName
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.model.content import model_provenance
from interp.model.edits import add, gate
from interp.model.head_arguments import HeadsLike, heads_with_stack
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.causal.task import Task
    from interp.model.edits import Edit
    from interp.model.model import Model

FACTORS = (-2.0, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
HOWS = ("scale", "add")
HELD_OUT = 1000  # added to the seed of the plain prompts


@takes_model
def steer(
    model: Model,
    heads: HeadsLike,
    task: Task,
    *,
    method: Literal["scale", "add"] = "scale",
    factors: Sequence[float] = FACTORS,
    direction: Outputs | None = None,
    plain: Task | None = None,
    n_random: int = 4,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> ResultRows:
    """Measure a task and the loss on plain text while heads are scaled or added to.

    Args:
        model: the model.
        heads: the heads that are steered together, such as `["L3H1", "L4H0"]`, or a result.
        task: the task. With `method="add"` and no direction, its first half of the prompts makes
            the direction and the second half is measured.
        method: "scale" multiplies the heads' output z by the factor (1 is the model itself, 0 the
            ablation by zero); "add" adds the factor times a direction (0 is the model itself).
        factors: the doses.
        direction: what "add" adds per stack and layer, `[1, head, 1, d_head]`; by default the mean
            output z on the prompts minus that on the task's corrupted prompts, at the position that
            answers.
        plain: task of the harmless damage; by default the loss on plain text.
        n_random: random sets of as many heads of the same layers that get the same doses, as the
            null; 0 for none.
        seed: seed of the random sets and of the plain prompts.
        progress: see `Progress`.

    Returns:
        One row per task and factor: task, factor, score (mean over prompts) with sem, n and
        clusters, null (the mean over random sets), unit and heads. Facts: tasks, the name, unit and
        direction (True: higher is better) of the task and of the harmless damage; values and
        random, their values `[factor, prompt]`, and those of the random sets, `[set, factor,
        prompt]`; unchanged, the factor at which the model is itself.

    Raises:
        OptionError: a factor is not a finite number, a head does not exist, a task has no corrupted
            prompts to make a direction from, or too few prompts.
        UnknownName: `method` does not exist.

    Unit: of the task; nats per token on plain text.

    Cost: One forward pass per factor and prompt, and the same for every random set.

    Null: the same doses for random sets of as many heads in the same layers.

    Not for: showing that a head is needed: a large factor leaves the range in which the model was
    trained. See the damage on plain text.

    Reference: Turner et al. 2023, "Steering Language Models With Activation Engineering" (adding
    a difference of means; here to the outputs of heads).
    """
    chosen = heads_with_stack(model.whole_sites, heads, model.name)
    if method not in HOWS:
        raise UnknownName("kind of steering", method, HOWS)
    doses = tuple(float(x) for x in factors)
    if not doses or not all(map(math.isfinite, doses)) or len(set(doses)) < len(doses):
        raise OptionError(
            f"factors {list(factors)}; give one or more different finite numbers, such as -2,0,1,3"
        )
    if n_random < 0:
        raise OptionError(f"n_random={n_random}; give 0 or more")
    measured = task
    if method == "add" and direction is None:
        direction, measured = _split(model, task)
    on_text: Task = plain or plain_task(model, seed=seed + HELD_OUT)
    sets = [chosen, *random_sets(model, chosen, n_random, seed)]
    done, total = 0, len(doses) * len(sets) * 2
    by_set: list[list[Float[np.ndarray, "factor prompt"]]] = []
    for one in sets:
        rows = []
        for each in (measured, on_text):
            values = []
            for dose in doses:
                values.append(_values(model, each, _edit(one, method, dose, direction)))
                done += 1
                if progress is not None:
                    progress("steering", done, total)
            rows.append(np.stack(values))
        by_set.append(rows)
    provenance = model_provenance(model) | {
        "how": method,
        "heads": [str(h) for h in chosen],
        "seed": seed,
        "task": measured.about(),
        "plain": on_text.about(),
        "n_random": len(sets) - 1,
        "edits": [_edit(chosen, method, dose, direction).name for dose in doses],
        "made_by": "interp.causal.steer",
    }
    first, second = ((t.name, t.unit, t.higher_is_better) for t in (measured, on_text))
    random = [
        np.stack([x[k] for x in by_set[1:]]) if by_set[1:] else np.zeros((0, *by_set[0][k].shape))
        for k in (0, 1)
    ]
    return dose_rows(
        model.name,
        [*map(str, chosen)],
        method,
        doses,
        (first, second),
        by_set[0],
        random,
        (measured.clusters, on_text.clusters),
        provenance,
    )


def _edit(heads: Sequence[Head], how: str, dose: float, direction: Outputs | None) -> Edit:
    if how == "scale":
        return gate(heads, dose)
    assert direction is not None
    return add(heads, direction, dose)


def _split(model: Model, task: Task) -> tuple[Outputs, Task]:
    """Return the direction of the first half of the prompts, and the task on the second half."""
    clean, corrupted = task.prompts, task.corrupted
    if not isinstance(clean, Prompts) or not isinstance(corrupted, Prompts):
        raise OptionError(
            f"task {task.name} has no corrupted prompts, so there is no difference to add; give "
            "such a task (ioi, greater_than, induction, a .jsonl file with `corrupted`), or a "
            "direction"
        )
    n = len(task)
    if n < 4:
        raise OptionError(f"task {task.name} has {n} prompts; a direction and its test need 4")
    first = range(n // 2)
    sides = [_mean_at(model, task, x.ids, first) for x in (clean, corrupted)]
    direction = {at: sides[0][at] - sides[1][at] for at in sides[0]}
    return direction, _second_half(task, n // 2)


def _mean_at(model: Model, task: Task, ids: Sequence[tuple[int, ...]], which: range) -> Outputs:
    """Return the mean z of every head at the last position that each prompt's task reads."""
    total: dict[tuple[str, int], Tensor] = {}
    for i in which:
        at = task.positions[i][-1] % len(ids[i])
        cache = model.capture([ids[i]], ("z",), positions=[at])
        for place, z in cache.z_by_site().items():
            total[place] = total.get(place, 0) + z.double()
    return {place: x / len(which) for place, x in total.items()}


def _second_half(task: Task, start: int) -> Task:
    prompts = task.prompts
    assert isinstance(prompts, Prompts)
    which = list(range(start, len(task)))
    before = sum(map(len, task.positions[:start]))
    rows, prompt = task.read_rows, task.read_prompt

    def read_rows(logits: Tensor, index: Tensor, clean: Tensor | None) -> Tensor:
        assert rows is not None
        return rows(logits, index + before, clean)

    def read_prompt(logits: Tensor, number: int) -> Any:
        assert prompt is not None
        return prompt(logits, number + start)

    return replace(
        task,
        prompts=prompts.part(which),
        corrupted=None,
        positions=task.positions[start:],
        read_rows=None if rows is None else read_rows,
        read_prompt=None if prompt is None else read_prompt,
    )


def _values(model: Model, task: Task, edit: Edit) -> Float[np.ndarray, " prompt"]:
    """Return the task's value of each prompt under an edit."""
    if task.needs_clean or not isinstance(task.prompts, Prompts):
        raise OptionError(
            f"task {task.name}: steering needs prompts of token ids and a measure of the logits "
            "alone; give another measure"
        )
    out = np.zeros(len(task))
    for which in by_length(task.prompts.ids):
        with torch.no_grad():
            logits = model.run([task.prompts.ids[i] for i in which], edits=[edit])
        read = torch.cat([logits[k][list(task.positions[i])] for k, i in enumerate(which)])
        if task.vocabulary is not None:
            read = read[:, list(task.vocabulary)]
        out[which] = task.values(read, which).double().cpu().numpy()
    return out
