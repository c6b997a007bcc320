"""Sources of the transfer test of heads: another answer, or the same answer made otherwise.

Every prompt has two sources of its own length: one keeps the computation and changes the answer,
the other keeps the answer and changes the computation.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.causal.gating.units import selected
from interp.causal.measures import logit_difference
from interp.causal.task import Task
from interp.circuits.tasks.named import make_contrast, split_templates
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts, bos_id, ordinary_ids, repeats
from interp.heads.causal_check.declared_tasks import declared_task
from interp.heads.causal_check.needles import Unanswered, needle_sources

if TYPE_CHECKING:
    from interp.model.model import Model

N = 32  # prompts
LEAST = 6  # fewer prompts with both sources cannot reach a p of 0.05
OTHERS = 64  # tokens whose mean logit that of the answer is compared with
NEAR = 3  # tokens by which two periods differ, if possible
POOL = 8  # prompts that are drawn for each one, to find its sources among them


@dataclass(frozen=True, eq=False)
class TransferTask:
    """Prompts with two sources each, as tasks that differ in their corrupted prompts alone.

    Args:
        other_answer: the sources keep the computation and have another answer.
        other_computation: the sources have the same answer, reached otherwise.
        clusters: label per prompt, if prompts are dependent.
    """

    other_answer: Task
    other_computation: Task
    clusters: tuple[str, ...] | None = None


def transfer_task(
    model: Model,
    metric: str,
    *,
    seed: int = 0,
    scored: Mapping[str, Any] | None = None,
    n: int = N,
    max_length: int | None = None,
) -> TransferTask:
    """Return the prompts and sources of the transfer test of a metric's heads.

    Repeated random tokens: the prompt ends within its second copy, and the token that follows in
    the first copy is the answer, measured by its logit minus the mean of up to 64 others. The
    source of another answer has another token there; the other source repeats other random tokens
    in another period, so that the answer stands at another distance behind another token. Needles:
    another needle at the same depth, or the same needle at another depth. Contrast tasks: pairs are
    drawn and matched, by answer, template and positions of the roles.
    """
    name = declared_task(metric, scored)
    if name in ("repeats", "induction"):
        return repeated(model, repeats(model, n=n, max_length=max_length or 24, seed=seed), seed)
    if name == "needles":
        task, another, same = needle_sources(
            model, n=n, max_length=max_length, seed=seed, scored=scored
        )
        if len(task) < LEAST:
            raise Unanswered(
                f"only {len(task)} needles have another of the same length; at least {LEAST} are"
                " needed"
            )
        return _with_sources(task, another, same)
    if name in ("in_context", "after_delimiters"):
        raise Unanswered(f"no prompts with the same answer are made for the task {name}")
    return _matched(model, name, seed, n, max_length)


def repeated(model: Model, copies: Prompts, seed: int = 0) -> TransferTask:
    """Return the test on prompts of repeated random tokens, each cut in its second copy."""
    rng = np.random.default_rng([seed, 45])
    ids, first = ordinary_ids(model), int(bos_id(model) is not None)
    rows = [_one_repeat(tuple(row), first, ids, rng) for row in copies.ids]
    usable = [row for row in rows if row is not None]
    if len(usable) < LEAST:
        raise Unanswered(
            f"only {len(usable)} of {len(rows)} prompts of repeated tokens have room for the answer"
            f" at another distance; at least {LEAST} are needed"
        )
    prompts = Prompts(tuple(row[0] for row in usable), f"{copies.design}, cut in the second copy")
    # logits of the answer do not saturate where other heads give it too, as its loss does
    answers, wrong = [row[0][-1] for row in usable], [_others(ids, row, rng) for row in usable]
    ends = [len(row[0]) - 2 for row in usable]
    task = logit_difference(model, prompts, answers, wrong, position=ends, name="cut_repeats")
    return _with_sources(task, [row[1] for row in usable], [row[2] for row in usable])


def _one_repeat(
    row: tuple[int, ...], first: int, ids: np.ndarray, rng: np.random.Generator
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Return a cut prompt and its two sources, all with their answer as the last token."""
    period = (len(row) - first) // 2
    words = row[first : first + period]
    spare = rng.permutation(np.setdiff1d(ids, words)).tolist()
    if len(set(words)) < period or len(spare) < 2:
        return None
    at = int(rng.integers(max(period // 2 - 1, 0), period - 1))
    answer, length = words[at + 1], period + at + 1
    # as long, in another period: after its first copy, less than a whole one follows
    periods = np.array([p for p in range(length // 2 + 1, length) if p != period])
    if not len(periods):
        return None
    near = periods[np.abs(periods - period) <= max(NEAR, np.abs(periods - period).min())]
    other_period = int(rng.choice(near))
    changed, *rest = spare
    base = row[: first + length + 1]
    other = [*base[:-1], changed]
    other[first + at + 1] = changed
    # tokens of the prompt fill up where the vocabulary is small; they stand elsewhere
    fresh = [*rest, *(x for x in rng.permutation(words).tolist() if x not in (answer, words[at]))]
    end = length - 1 - other_period
    if len(fresh) < other_period - 1:
        return None
    copy = fresh[: other_period - 1]
    copy.insert(end + 1, answer)
    same = (copy * 2)[:length]
    return base, tuple(other), (*base[:first], *same, answer)


def _others(ids: np.ndarray, row: Sequence[tuple[int, ...]], rng: np.random.Generator) -> list[int]:
    """Draw tokens that the answer is compared with: none of the prompt or sources, if possible."""
    given = {x for prompt in row for x in prompt}
    allowed = np.setdiff1d(ids, list(given))
    if not len(allowed):
        allowed = np.setdiff1d(ids, [row[0][-1], row[1][-1]])
    return rng.permutation(allowed)[:OTHERS].tolist()


def _with_sources(
    task: Task,
    other: Sequence[tuple[int, ...]],
    same: Sequence[tuple[int, ...]],
    clusters: tuple[str, ...] | None = None,
) -> TransferTask:
    return TransferTask(
        replace(task, corrupted=Prompts(tuple(other), "with another answer")),
        replace(task, corrupted=Prompts(tuple(same), "the same answer, reached otherwise")),
        clusters,
    )


def _matched(model: Model, name: str, seed: int, n: int, max_length: int | None) -> TransferTask:
    """Return the test on the pairs of a contrast task, with sources among more of its prompts."""
    first, _ = split_templates(name)
    try:
        base = make_contrast(model, name, n=n, seed=seed, templates=first or None)
        pool = make_contrast(model, name, n=POOL * n, seed=seed + 1)
    except (PromptError, OptionError) as error:
        raise Unanswered(f"the task {name} cannot be made for this model: {error}") from error
    answers, pool_answers = (answers_of(model, x.task) for x in (base, pool))
    forms, pool_forms = _forms(base), _forms(pool)
    rng = np.random.default_rng([seed, 45])
    kept, other, same = [], [], []
    for i, ids in enumerate(base.clean.ids):
        if max_length is not None and len(ids) > max_length:
            continue
        right, wrong = answers[i]
        order = [
            int(j)
            for j in rng.permutation(len(pool))
            if len(pool.clean.ids[j]) == len(ids) and pool.clean.ids[j] != ids
        ]
        a = [j for j in order if right != pool_answers[j][0] and pool_forms[j] == forms[i]]
        b = [j for j in order if right == pool_answers[j][0]]
        if a and b:
            # if possible the other answer is not this prompt's wrong one, and the form differs
            a.sort(key=lambda j: (len(right & pool_answers[j][0]), len(wrong & pool_answers[j][0])))
            b.sort(key=lambda j: pool_forms[j] == forms[i])
            kept.append(i)
            other.append(pool.clean.ids[a[0]])
            same.append(pool.clean.ids[b[0]])
    if len(kept) < LEAST:
        raise Unanswered(
            f"only {len(kept)} of {len(base)} prompts of the task {name} have one of the same"
            f" length with the same answer, and one with another; at least {LEAST} are needed"
        )
    labels = base.clusters
    clusters = None if labels is None else tuple(labels[i] for i in kept)
    return _with_sources(selected(base.task, kept), other, same, clusters)


def _forms(contrast: Any) -> list[Hashable]:
    """Return what stays the same in a computation: the template and the positions of the roles."""
    n = len(contrast)
    roles = contrast.roles or ({},) * n
    templates = contrast.templates or ("",) * n
    return [(t, tuple(sorted(r.items()))) for t, r in zip(templates, roles, strict=True)]


def answers_of(model: Model, task: Task) -> list[tuple[frozenset[int], frozenset[int]]]:
    """Return the tokens of every prompt whose higher logit makes it right, and those for wrong.

    They are the tokens with the largest derivatives of the measure, in its good direction and
    against it, where all logits are equal.
    """
    if not task.has_gradient or task.needs_clean:
        raise Unanswered(f"the measure of the task {task.name} does not tell its answers")
    columns = range(model.d_vocab) if task.vocabulary is None else task.vocabulary
    answers: list[tuple[frozenset[int], frozenset[int]]] = []
    for i, positions in enumerate(task.positions):
        logits = torch.zeros(len(positions), len(columns), dtype=torch.double, requires_grad=True)
        [slope] = torch.autograd.grad(task.sign * task.values(logits, [i]).sum(), logits)
        each = []
        for x in (slope.sum(0), -slope.sum(0)):
            at = (x > max(float(x.max()), 0.0) / 2).nonzero().flatten().tolist()
            each.append(frozenset(columns[k] for k in at))
        answers.append((each[0], each[1]))
    return answers
