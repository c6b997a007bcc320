"""Judge a claim about a task on pairs of prompts that judged and chose nothing.

Heads do a task if the model loses its gap, clean minus corrupted, once their outputs are replaced
by those on the corrupted prompt of each pair; a circuit does it if the gap is kept while everything
outside it carries values of the corrupted prompt. The share of a pair lies between 0 and 1, and its
mean is judged like that of a hypothesis about a head: against the same words, and against random
heads of the same layers, or random sets of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.causal.game.game import Game
from interp.circuits.contrast import hashes
from interp.circuits.gap import NOTHING
from interp.circuits.groups import LARGE
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.set_evaluation import random_set
from interp.circuits.smallest import edges_between
from interp.circuits.steps import following
from interp.circuits.tasks.named import is_file, make_contrast
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.result_rows import ResultRows
from interp.core.statistics import bootstrap_bounds
from interp.core.ties import ordered, ordered_by
from interp.model.content import model_provenance
from interp.model.head_arguments import heads_with_stack
from interp.profiles.task_claim import fresh_pairs, require_gap
from interp.profiles.verdict import IN_PART, SHARES, Tested

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.circuits.contrast import ContrastTask
    from interp.core.protocols import Progress
    from interp.model.model import Model
    from interp.profiles.ledger import QuestionLedger
    from interp.profiles.task_claim import TaskClaim

LOST, KEPT = "share lost", "share kept"
RANDOM, RESTORED, ALONE = "random sets", "share restored", "share lost: "
STANDING = "share lost with stand-ins: "
N_SETS = 20  # random sets of a control
_CHOOSING, _MOST = 16, 3  # pairs that choose heads that take over, and most such heads
_SHOWN = 256  # pairs that show whether the model does the task, the same for every question
_ALL = 0.9  # mean share lost above which nothing is left that others could have taken over
_BELOW = 0.5  # a pair that is further behind a control counts as this far


@dataclass(frozen=True, eq=False)
class JudgedShares:
    """Shares of pairs: that which is judged, that of the control, and others.

    Args:
        judged: name of the share that is judged.
        shares: by name, the share of every pair.
        sets: number of random sets.
        controls: names of the shares of controls, those that there are.
    """

    judged: str
    shares: Mapping[str, Float[np.ndarray, " pair"]]
    sets: int
    controls: tuple[str, ...] = (RANDOM,)

    @property
    def values(self) -> Float[np.ndarray, "share pair"]:
        """All shares, by name and pair."""
        return np.stack([*self.shares.values()])

    @property
    def tested(self) -> Tested:
        """The tests of the judged share, and of how far it is ahead of each control.

        Differences are not cut at 0, so that noise is not ahead of noise.
        """
        own = self.shares[self.judged]
        ahead = {name: (own - self.shares[name]).clip(-_BELOW, 1) for name in self.controls}
        least = (SHARES[IN_PART] + _BELOW) / (1 + _BELOW)
        over = {name: (x + _BELOW) / (1 + _BELOW) for name, x in ahead.items()}
        return Tested.of_shares(own, over, least)


def judge_task(
    model: Model,
    claim: TaskClaim,
    books: QuestionLedger,
    *,
    n: int,
    least: int,
    seed: int,
    progress: Progress | None = None,
) -> ResultRows:
    """Judge a claim about a task on up to n fresh pairs of the task, at least so many."""
    if claim.circuit is not None:
        claim.circuit.require(model)
    heads = heads_with_stack(model.whole_sites, claim.heads, model.name) if claim.heads else ()
    n_shown = 2**31 if is_file(claim.task) else _SHOWN
    make_contrast(model, claim.task, n=n_shown, seed=seed).gap(model)  # refuses other models
    with books.turn() as turn:
        drawn = int(np.random.default_rng([seed, turn.number, 67]).integers(2**31))
        pairs, keys, left = fresh_pairs(model, claim, turn.used, n, least, drawn)
        clean, corrupted = pairs.values(model)
        gap = pairs.task.sign * (clean - corrupted)
        known = np.flatnonzero(gap > NOTHING)
        require_gap(len(known), len(pairs), claim.task, model, least)
        some, gap = pairs.some(known.tolist()), gap[known]
        if claim.circuit is not None:
            measured = _of_circuit(model, claim, some, gap, seed, progress)
        else:
            measured = _of_heads(model, claim, heads, some, gap, seed, progress)
        facts = measured.tested.settled(turn, claim.asked, keys)
    facts |= {
        "head": " ".join(map(str, claim.heads)),
        "task": claim.task,
        "subject": claim.subject,
        "gap": float(gap.mean()),
        "gap_unit": some.task.unit,
        "without_gap": len(pairs) - len(known),
        "fresh_left": left,
        "wordings": len({*some.clusters}) if some.clusters else None,
    }
    about = some.about() | {"ablation": "corrupted", "options": {"n_documents": n, "seed": seed}}
    ends = bootstrap_bounds(measured.values, 0.95, some.clusters)
    kept = {"clusters": some.clusters, "interval_by": "bootstrap"}
    return verdict_rows(model, measured, ends, facts, about, **kept)


def verdict_rows(
    model: Model,
    measured: JudgedShares,
    ends: Float[np.ndarray, "share 2"],
    facts: dict[str, Any],
    about: dict[str, Any],
    **kept: Any,
) -> ResultRows:
    """Return the verdict with a row per share, from the ends of their 95 % intervals.

    What else is given is kept of the result: how intervals of other levels are made.
    """
    values = measured.values
    rows = {"number": [*measured.shares], "score": values.mean(1)}
    first = {"metric": measured.judged, "unit": "share", "random_sets": measured.sets}
    return ResultRows(
        "Verdict",
        rows | {"low": ends[:, 0], "high": ends[:, 1], "n": values.shape[1]},
        ("number",),
        model_provenance(model) | about | {"made_by": "interp.profiles.judge"},
        first | {"examples": []} | facts,
        values,
        **kept,
    )


def _of_heads(
    model: Model,
    claim: TaskClaim,
    heads: Sequence[Head],
    task: ContrastTask,
    gap: Float[np.ndarray, " pair"],
    seed: int,
    progress: Progress | None,
) -> JudgedShares:
    """Measure what is lost without the heads, without random others, and what they restore."""
    stack = heads[0].stack
    sites = [site for site in model.whole_sites if site.stack == stack]
    every = [Head(site.layer, h, stack) for site in sites for h in range(site.n_heads)]
    others = _other_heads(heads, every, seed)
    alone = [(head,) for head in heads] if len(heads) > 1 else []
    options = {"kind": "resample", "stack": stack, "seed": seed}
    game = Game(model, task.task, **options)
    lost = _without(game, every, [tuple(heads), *alone, *others], progress) / gap
    lost = lost.clip(0, 1)
    shares = {LOST: lost[0], RANDOM: median_set(lost[1 + len(alone) :])}
    shares |= {f"{ALONE}{head}": x for (head,), x in zip(alone, lost[1:], strict=False)}
    swapped = replace(task.task, prompts=task.corrupted, corrupted=task.clean)
    backwards = Game(model, swapped, check=False, **options)
    restored = -_without(backwards, every, [heads], progress)[0] / gap
    shares |= {RESTORED: restored.clip(0, 1)}
    stand_ins: list[Head] = []
    if lost[0].mean() < _ALL:
        stand_ins = _stand_ins(model, claim, heads, every, task, options, progress)
    if stand_ins:
        names = "+".join(map(str, stand_ins))
        [more] = _without(game, every, [(*heads, *stand_ins)], progress) / gap
        shares |= {f"{STANDING}{names}": more.clip(0, 1)}
    return JudgedShares(LOST, shares, len(others))


def median_set(shares: Float[np.ndarray, "set pair"]) -> Float[np.ndarray, " pair"]:
    """Return the shares of the set whose mean is the median: a few random sets hold the truth."""
    return shares[ordered(shares.mean(1).tolist())[(len(shares) - 1) // 2]]


def _without(
    game: Game, every: Sequence[Head], sets: Sequence[Sequence[Head]], progress: Progress | None
) -> Float[np.ndarray, "set pair"]:
    """Return what each pair loses with the outputs of some heads from its corrupted prompt."""
    gates = torch.ones(len(sets), len(every), dtype=torch.double)
    for row, out in enumerate(sets):
        gates[row, [every.index(head) for head in out]] = 0
    values = game.values(gates, progress=progress)
    return (game.task.sign * (game.clean - values)).numpy()


def _stand_ins(
    model: Model,
    claim: TaskClaim,
    heads: Sequence[Head],
    every: Sequence[Head],
    judging: ContrastTask,
    options: dict[str, Any],
    progress: Progress | None,
) -> list[Head]:
    """Find heads that matter more once the claimed ones are replaced, on pairs that do not judge.

    None is found where the task has no other pairs.
    """
    n = 2**31 if is_file(claim.task) else _CHOOSING
    pairs = make_contrast(model, claim.task, n=n, seed=int(options["seed"]) + 1)
    judges = {*hashes(judging)}
    other = [i for i, pair in enumerate(hashes(pairs)) if pair not in judges][:_CHOOSING]
    if not other:
        return []
    pairs = pairs.some(other)
    clean, corrupted = pairs.values(model)
    gap = float(pairs.task.sign * (clean - corrupted).mean())
    free = [head for head in every if head not in heads]
    sets = [(*heads,), *((head,) for head in free), *((*heads, head) for head in free)]
    game = Game(model, pairs.task, check=False, **options)
    lost = _without(game, every, sets, progress).mean(1)
    gain = lost[1 + len(free) :] - lost[1 : 1 + len(free)] - lost[0]
    first = ordered_by(range(len(free)), gain.tolist().__getitem__, scale=abs(gap))[:_MOST]
    return [free[i] for i in first if gain[i] > LARGE * gap > 0]


def _other_heads(heads: Sequence[Head], every: Sequence[Head], seed: int) -> list[tuple[Head, ...]]:
    """Draw different sets of as many other heads, of the same layers as far as these have them."""
    free = [head for head in every if head not in heads]
    if len(free) < len(heads):
        raise OptionError(
            f"the claim names {len(heads)} of {len(every)} heads, so that there are not as many"
            " others to compare them with; name the heads that do the task"
        )
    rng, drawn = np.random.default_rng([seed, 71]), dict[tuple[Head, ...], None]()
    for _ in range(N_SETS):
        left = [free[i] for i in rng.permutation(len(free))]
        chosen: list[Head] = []
        for head in heads:
            other = next((x for x in left if x.layer == head.layer), None)
            chosen += [] if other is None else [other]
            left = [x for x in left if x != other]
        drawn[tuple(sorted([*chosen, *left[: len(heads) - len(chosen)]]))] = None
    return [*drawn]


def _of_circuit(
    model: Model,
    claim: TaskClaim,
    task: ContrastTask,
    gap: Float[np.ndarray, " pair"],
    seed: int,
    progress: Progress | None,
) -> JudgedShares:
    """Measure what is kept with the circuit alone, and with random nodes and all their edges."""
    rng = np.random.default_rng([seed, 73])
    with following(None, progress):
        runs = PatchedRuns(model, task)
        graph = runs.graph
        edges = edges_between(graph, claim.nodes) if claim.edges is None else claim.edges
        sets = [random_set(graph, claim.nodes, rng) for _ in range(N_SETS)]
        masks = [graph.mask(edges), *(runs.only(nodes) for nodes in sets)]
        kept = (runs.kept(masks, "circuit and random sets") / gap).clip(0, 1)
    return JudgedShares(KEPT, {KEPT: kept[0], RANDOM: median_set(kept[1:])}, len(sets))
