"""Causal check of head scores: ablate the top-scoring heads and compare with random sets.

    confirm(model, ["induction", "previous_token"], k=3)

ablates the top k heads of a score together and compares the damage to a task with the damage from
ablating other heads: random sets with as many heads in every layer, and random sets from any
layers. Heads that attend as the score describes but have no effect give a ratio of 1 and a large p.
Every check reports the smallest p that is possible, and whether the model does the task better than
chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from interp.causal.task import Task
from interp.causal.text_tasks import plain_task
from interp.circuits.head_games import game_or_reason, head_transfers, values_of_sets
from interp.circuits.head_tasks import HELD_OUT, own_task
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.steps import finishing
from interp.heads.causal_check.needles import Unanswered
from interp.heads.causal_check.one_check import CausalCheck
from interp.heads.causal_check.result import Confirmation
from interp.heads.causal_check.sets import (
    Chosen,
    chosen_heads,
    compared_sets,
    held_role,
    judged,
)
from interp.heads.declaration import bound
from interp.heads.roles.decide import roles
from interp.heads.scoring import score
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

N_RANDOM = 60


@takes_model
@finishing()
def confirm(
    model: Model,
    scores: Any,
    *,
    k: int | None = None,
    task: Task | None = None,
    plain: Task | None = None,
    by: str = "score",
    n_random: int = N_RANDOM,
    kind: str = "zero",
    n: int | None = None,
    max_length: int | None = None,
    seed: int = 0,
    level: float = 0.95,
    progress: Progress | None = None,
    announce: Callable[[Any], None] | None = None,
    **options: Any,
) -> Confirmation:
    """Ablate the heads of each score, together and one by one, beside random sets of heads.

    `conclusions` of the result says what was shown, in one sentence per score.

    Args:
        model: the model whose heads are ablated.
        scores: a table of head scores (every metric in it), names of metrics (scored here), or a
            mapping of names to heads, such as `{"my heads": ["L5H1", "L5H5"]}`.
        k: number of heads of each score that are ablated together; by default all heads with the
            role that the score decides (`interp.roles`), or three if no head has it. Not needed
            where heads are given.
        task: the measured task; by default the task of that kind of head (see
            `interp.circuits.head_tasks.own_task`).
        plain: a second task that shows general damage; by default the loss on plain text.
        by: order of the heads: "score" takes the highest scores, "lowest" the lowest, "null" those
            farthest above the null.
        n_random: random sets per score. If fewer exist, all are run and the p-value is that of the
            exact permutation test.
        kind: replacement for the output of an ablated head; see `interp.causal.game.replacement`.
        n: number of prompts of the default tasks.
        max_length: maximum number of tokens per prompt of the default tasks.
        seed: seed of the scores and random sets; the prompts of default tasks use a different seed,
            so that heads are never chosen and tested on the same prompts (see
            `CausalCheck.same_prompts`).
        level: level of the confidence intervals, by bootstrap over prompts and random sets.
        progress: see `Progress`.
        announce: called with the estimated time and memory of each game before it runs.
        options: options of `Game`: stack, heads (candidates for the random sets), without, resume,
            max_tokens, ...

    Random sets are drawn from all heads (of the layers, or of the model), the top ones included,
    because then is the rank of the top set uniform under the null hypothesis. The result gives
    the mean number of their heads that hold the same role: beside such sets a redundant role has a
    large p, and the conclusion says so.

    Heads count as needed only if the same holds for the same answers asked in another form (purpose
    "transfer"; see `interp.circuits.head_tasks.OTHER_FORM`), if the task has one.

    Each head is also tested by itself on prompts with two sources (`interp.circuits
    .transfer_prompts`): its output is taken from a prompt that keeps the computation and changes
    the answer, and from one that keeps the answer and changes the computation. The conclusion lists
    heads that pass ablation and fail this; see `CausalCheck.transfers`.

    A retrieval score is checked on needles other than those scored, in the task of the score. If
    the model answers none of them, this check is omitted and `Confirmation.notes` gives the reason.
    So is a check on a task that the model does no better than uniform guessing.

    Raises:
        OptionError: k exceeds the number of heads, no other set of the same shape exists, the task
            is constant, or the scores have no value for any head.
        UnknownName: the metric or order does not exist.

    Unit: of the task.

    Cost: One forward pass per random set; 60 of each kind and task, or as many as there are.

    Null: random sets of as many heads in the same layers.

    Not for: a task unrelated to the heads: the check then shows only that plain loss does not need
    them.

    Reference: this project; permutation test of head sets. The control with the same answer is
    that of Quirke 2026.
    """
    if n_random < 1 or not 0 < level < 1:
        raise OptionError(
            f"n_random={n_random}, level={level}: n_random must be at least 1 and "
            f"level must lie between 0 and 1"
        )
    if options.get("players", "heads") != "heads":
        raise OptionError(
            f"players={options['players']!r}: the causal check ablates single "
            f"heads; use players='heads'"
        )
    table = _table(model, scores, seed)
    names = list(table) if isinstance(table, Mapping) else list(table.metrics)
    sizes = {name: x for name, x in (("n", n), ("max_length", max_length)) if x is not None}
    plan = _Plan(plain=plain or plain_task(model, seed=seed + HELD_OUT, **sizes))
    assigned = None if isinstance(table, Mapping) else roles(table)
    for name in names:
        reason = _nothing_scored(table, model, name)
        if reason is not None:
            plan.notes[name] = reason
        elif task is not None:
            plan.one_form[name] = plan.untested[name] = "the task was given"
            plan.add(name, (task, "given"))
        else:
            _add_own(plan, model, name, seed, _scored(table, model, name), sizes)
    if not plan.tasks:
        raise OptionError("; ".join(f"{name}: {why}" for name, why in plan.notes.items()))
    checks: list[CausalCheck] = []
    about: dict[str, Any] = {}
    for each, purpose, every in plan.tasks.values():
        mine = [name for name in every if purpose != "transfer" or name not in plan.notes]
        if not mine:
            continue
        game = game_or_reason(model, each, purpose, kind=kind, seed=seed, **options)
        if isinstance(game, str):
            missing = plan.one_form if purpose == "transfer" else plan.notes
            missing.update(dict.fromkeys(mine, game))
            continue
        compared = []
        for name in mine:
            held = held_role(game, assigned, name)
            top = chosen_heads(game, table, name, k, by, held)
            compared.append(compared_sets(game, top, held, n_random, seed, purpose != "transfer"))
        values = values_of_sets(game, [x for c in compared for x in c.every], progress, announce)
        at = 0
        for one in compared:
            rows = values[at : at + len(one.every)]
            at += len(rows)
            same = _chosen_on(table, model, one.top.name) == each.about()["prompts_hash"]
            check = judged(game, purpose, one, rows, level=level, seed=seed, same_prompts=same)
            check = _with_transfers(
                check,
                plan,
                model,
                one.top,
                progress,
                announce,
                seed=seed,
                scored=_scored(table, model, one.top.name),
                sizes=sizes,
                level=level,
                kind=kind,
                **options,
            )
            checks.append(check)
        about[each.name] = game.about()
    order = {name: at for at, name in enumerate(names)}
    last = ("transfer", "plain")
    checks.sort(key=lambda c: (order[c.metric], last.index(c.purpose) if c.purpose in last else -1))
    provenance = model_provenance(model) | {
        "by": by,
        "kind": kind,
        "n_random": n_random,
        "level": level,
        "seed": seed,
        "tasks": about,
        "notes": plan.notes,
        "transfer_notes": plan.one_form,
        "head_transfer_notes": plan.untested,
        "made_by": "interp.circuits.head_checks",
    }
    return Confirmation(tuple(checks), provenance)


@dataclass
class _Plan:
    """Tasks with the scores that are checked on them, and why a score lacks a task.

    Args:
        plain: the task of general damage, on which every score is checked.
        tasks: task, purpose and scores, by the hash of the task.
        notes: why a score is not checked on its own task.
        one_form: why a score is not checked in another form of its task.
        untested: why the transfer of a score's heads is not tested.
    """

    plain: Task
    tasks: dict[str, tuple[Task, str, list[str]]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    one_form: dict[str, str] = field(default_factory=dict)
    untested: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, *tasks: tuple[Task | None, str]) -> None:
        """Add the tasks of one score, and the plain one."""
        for task, purpose in (*tasks, (self.plain, "plain")):
            if task is None:
                continue
            mine = self.tasks.setdefault(task.hash, (task, purpose, []))[2]
            if name not in mine:
                mine.append(name)


def _add_own(
    plan: _Plan,
    model: Model,
    name: str,
    seed: int,
    scored: Mapping[str, Any],
    sizes: Mapping[str, Any],
) -> None:
    """Add the task of a score and its other form, or the reasons why there are none."""
    original: Task | None = None
    other: Task | None = None
    try:
        original = own_task(model, name, seed=seed, scored=scored, **sizes)
    except Unanswered as error:
        plan.notes[name] = f"not checked on its own task: {error}, so no head can be necessary"
    if original is None:
        plan.one_form[name] = plan.untested[name] = "the score has no task of its own"
    else:
        try:
            other = own_task(model, name, seed=seed, scored=scored, transfer=True, **sizes)
        except Unanswered as error:
            plan.one_form[name] = str(error)
    plan.add(name, (original, "own"), (other, "transfer"))


def _with_transfers(
    check: CausalCheck, plan: _Plan, model: Model, top: Chosen, *given: Any, **options: Any
) -> CausalCheck:
    """Return a check on the own task with the transfer test of its heads, others unchanged.

    The reason for which there is no test is kept.
    """
    if check.purpose != "own":
        return check
    transfers = head_transfers(model, top, *given, **options)
    if isinstance(transfers, str):
        plan.untested[top.name] = transfers
        return check
    return replace(check, transfers=transfers)


def _nothing_scored(table: Any, model: Model, name: str) -> str | None:
    """Return the reason that the score itself gives for having no value for any head."""
    if isinstance(table, Mapping):
        return None
    headline = table.provenance.get((model.name, name), {}).get("headline")
    empty = bool(table.where(metric=name).to_pandas()["score"].isna().all())
    return str(headline) if headline and empty else None


def _scored(table: Any, model: Model, name: str) -> dict[str, Any]:
    """Return the options and seed of a score, with the values chosen in place of "auto"."""
    if isinstance(table, Mapping):
        return {}
    stored = table.provenance.get((model.name, name), {})
    seed = {"seed": stored["seed"]} if "seed" in stored else {}
    return {**stored.get("options", {}), **stored.get("settled", {}), **seed}


def _chosen_on(table: Any, model: Model, name: str) -> str | None:
    """Return the hash of the prompts on which the heads were scored; None if it is not known."""
    if isinstance(table, Mapping):
        return None
    stored = table.provenance.get((model.name, name), {})
    return stored.get("prompts_hash")


def _table(model: Model, scores: Any, seed: int) -> Any:
    """Return the table of this model alone, or a mapping of names to heads."""
    from interp.core.table import HeadTable

    if isinstance(scores, Mapping):
        if not scores:
            raise OptionError(
                "no heads are given, so there is nothing to check; give at least one head"
            )
        return scores
    if not isinstance(scores, HeadTable):
        given: Iterable[Any] = [scores] if not isinstance(scores, (list, tuple)) else scores
        return score(model, [bound(m) for m in given], null="auto", seed=seed)
    if not len(scores):
        raise OptionError(
            "the table has no rows, so there is nothing to check; score at least one metric"
        )
    if len(scores.models) > 1:
        return scores.where(model=model.name)
    return scores
