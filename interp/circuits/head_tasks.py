"""Tasks for each kind of head.

Every metric declares the name of its task, or that it has none; then its heads are checked on plain
loss alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.bundled import plain_texts
from interp.causal.gating.units import selected
from interp.causal.measures import answer_probability, loss
from interp.causal.steering.in_context import in_context_prompts, known_functions
from interp.causal.task import Task
from interp.causal.text_tasks import PLAIN_PROMPTS, PLAIN_TOKENS, repeats_task
from interp.circuits.tasks.named import make_contrast, split_templates
from interp.core.errors import PromptError
from interp.core.prompts import Prompts, bos_id, repeats
from interp.heads.causal_check.declared_tasks import NONE, declared_task
from interp.heads.causal_check.needles import Unanswered, needle_task, other_needles

if TYPE_CHECKING:
    from interp.model.model import Model

HELD_OUT = 1000
"""Offset added to the seed, so that default tasks do not use the prompts of the scores."""
SHOTS = 5  # examples in a prompt of a function


def own_task(
    model: Model,
    metric: str,
    *,
    seed: int = 0,
    scored: Mapping[str, Any] | None = None,
    transfer: bool = False,
    **sizes: int,
) -> Task | None:
    """Return the task associated with this kind of head; None if none is declared."""
    name = declared_task(metric, scored)
    if not name or name.startswith(NONE):
        return None
    if name == "needles":
        make = other_needles if transfer else needle_task
        return make(model, seed=seed, scored=scored, **sizes)
    make = MADE_HERE.get(name)
    if make is not None:
        maker = OTHER_FORM.get(name) if transfer else make
        if maker is None:
            raise Unanswered(f"the task {name} has one form")
        return maker(model, seed=seed + HELD_OUT, **sizes)
    n: dict[str, Any] = {"n": sizes["n"]} if "n" in sizes else {}
    first, held_out = split_templates(name)
    if transfer and not held_out:
        raise Unanswered(f"the task {name} has one wording")
    if held_out:
        n["templates"] = held_out if transfer else first
    try:
        task = make_contrast(model, name, seed=seed + HELD_OUT, **n).task
    except PromptError as error:
        raise Unanswered(f"the task {name} cannot be made for this model: {error}") from error
    task = replace(task, name=f"{task.name} (other wordings)") if transfer else task
    return _within(task, sizes["max_length"]) if "max_length" in sizes else task


def _within(task: Task, max_length: int) -> Task:
    """Return the task on its prompts of at most `max_length` tokens; pairs cannot be cut."""
    lengths = [len(ids) for ids in task.prompts.ids]  # type: ignore[union-attr]  # pairs are ids
    kept = [i for i, length in enumerate(lengths) if length <= max_length]
    if not kept:
        raise Unanswered(
            f"the prompts of the task {task.name} have {min(lengths)} to {max(lengths)} tokens, "
            f"more than max_length={max_length}"
        )
    return task if len(kept) == len(lengths) else selected(task, kept)


def after_delimiters(
    model: Model, *, n: int = PLAIN_PROMPTS, max_length: int = PLAIN_TOKENS, seed: int = 0
) -> Task:
    """Return the loss on the tokens that follow a delimiter in plain text, in nats per token."""
    if model.tokenizer is None:
        raise Unanswered(f"{model.name} has no tokenizer, and the task is text with punctuation")
    max_length = min(x for x in (max_length, model.limit, model.context) if x)
    lines = plain_texts(model)
    order = np.random.default_rng([seed, 40]).permutation(len(lines))
    kept, at = [], []
    for ids in Prompts.of([lines[i] for i in order], model).ids:
        cut = tuple(ids[:max_length])
        words = [model.tokenizer.decode([token]).strip() for token in cut]
        after = [i + 1 for i, word in enumerate(words[:-1]) if word in DELIMITERS]
        if after and len(kept) < n:
            kept.append(cut)
            at.append(after)
    if not kept:
        raise Unanswered(f"no text has a delimiter among its first {max_length} tokens")
    return loss(model, Prompts(tuple(kept), "texts"), at, name="after_delimiters")


def in_context(
    model: Model,
    *,
    n: int = PLAIN_PROMPTS,
    max_length: int | None = None,
    seed: int = 0,
    form: Mapping[str, str] = MappingProxyType({}),
) -> Task:
    """Return the probability of the answers of functions that examples show."""
    functions = [] if model.tokenizer is None else list(known_functions(model, SHOTS))
    if not functions:
        raise Unanswered(f"the tokenizer of {model.name} has no function whose words are one token")
    each = -(-n // len(functions))
    given, ids = [], ()
    for shots in range(SHOTS, 1, -1):
        with suppress(PromptError):  # they exceed the model's positions
            given = [
                in_context_prompts(model, f, n=each, shots=shots, seed=seed, **form)
                for f in functions
            ]
            ids = tuple(x for one in given for x in one.ids)[:n]
            if max_length is None or max(map(len, ids)) <= max_length:
                break
    else:
        most = max(map(len, ids), default=0)
        bound = (
            f"max_length={max_length}" if most else f"the {model.limit} positions of {model.name}"
        )
        raise Unanswered(
            f"prompts with two examples have {f'up to {most} tokens, ' if most else ''}more than "
            f"{bound}"
        )
    labels = tuple(one.function for one in given for _ in one.ids)[:n]
    answers = [x for one in given for x in one.answers][:n]
    prompts = Prompts(ids, "examples of functions", clusters=labels if n > len(given) else None)
    return answer_probability(model, prompts, answers, name="in_context")


def repeated_pairs(
    model: Model, *, n: int = PLAIN_PROMPTS, max_length: int = 24, seed: int = 0
) -> Task:
    """Return the loss on the second token of pairs that return in another order.

    The prompt is `[BOS] a b c d ... | c d a b ...`: the answer to each first token of a pair is
    what followed it before, as in `repeats_task`, but no longer run of tokens returns, and the
    distance changes from pair to pair.
    """
    copies = repeats(model, n=n, max_length=max_length, seed=seed)
    rng = np.random.default_rng([seed, 44])
    first = int(bos_id(model) is not None)
    prompts, at = [], []
    for ids in copies.ids:
        period = (len(ids) - first) // 2 // 2 * 2
        start = ids[first : first + period]
        order = 2 * rng.permutation(period // 2)
        prompts.append((*ids[:first], *start, *(start[i + j] for i in order for j in (0, 1))))
        at.append(range(first + period + 1, first + 2 * period, 2))
    given = Prompts(tuple(prompts), "random pairs in another order", clusters=copies.clusters)
    return loss(model, given, at, name="repeated_pairs_loss")


_ARROWS = {"shown": "{x} -> {y}\n", "asked": "{x} ->"}
OTHER_FORM: dict[str, Callable[..., Task]] = {
    "repeats": repeated_pairs,
    "in_context": partial(in_context, form=_ARROWS),
}
"""Tasks that ask for the same answers in another form, by the name that a metric declares.

Needles are asked in another of their kinds, and contrast tasks in wordings that are held out.
"""
# By the name that a metric declares; other names are contrast tasks of `interp circuit`.
MADE_HERE: dict[str, Callable[..., Task]] = {
    "repeats": repeats_task,
    "needles": needle_task,
    "after_delimiters": after_delimiters,
    "in_context": in_context,
}
DELIMITERS = (".", ",", ";", ":", "!", "?")
