"""Measurements of a pruning run: order of the players, how many are removed, on which prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.causal.comparison.ranking import Ranking, given_order, require_all
from interp.causal.game.game import Game, Progress, RunEstimate
from interp.causal.importance import Importance
from interp.causal.pruning.folds import Fold, fold_orders, folds
from interp.causal.task import Task
from interp.core.errors import OptionError, UnknownName
from interp.core.table import HeadTable
from interp.core.ties import ordered

if TYPE_CHECKING:
    from interp.model.model import Model

Ranked = Importance | HeadTable | Sequence[Any]
HOW, ORDERS = ("one-shot", "greedy"), ("least-first", "most-first")
FINE = 24  # default steps of a ranking
COARSE = 6  # of random orders, if there are more players than steps of the ranking


def removal_counts(steps: int | Sequence[int] | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of the ranking, and those of random orders and bootstrap draws."""
    if steps is None and n > FINE:
        counts, _ = removal_counts(FINE, n)
        return counts, counts[:: FINE // COARSE]
    if steps is None or isinstance(steps, int):
        steps = n if steps is None else steps
        if steps < 1:
            raise OptionError(f"steps={steps}; remove at least one player (1 or more)")
        counts = np.unique(np.rint(np.linspace(0, n, steps + 1)).astype(np.int64))
        return counts, counts
    counts = sorted({0, *(int(x) for x in steps)})
    if counts == [0]:
        raise OptionError("steps do not remove any player; give counts of 1 or more")
    if counts[0] < 0 or counts[-1] > n:
        wrong = counts[0] if counts[0] < 0 else counts[-1]
        raise OptionError(f"steps contain {wrong}; counts must lie between 0 and {n} players")
    return np.array(counts, dtype=np.int64), np.array(counts, dtype=np.int64)


@dataclass(frozen=True)
class PruningPlan:
    """The orders of a run and the sets of players that they need."""

    game: Game
    counts: np.ndarray
    coarse: np.ndarray  # those of random orders and of bootstrap draws
    removed: list[int] | None  # players in order; None if greedy determines it
    orders: list[list[int]]  # random ones
    most_first: bool
    name: str
    ranked_on: str  # "these prompts", "other prompts", or "unknown"
    folds: list[Fold]
    half_orders: list[list[int]]  # two orders for each fold, if the ranking can be made from a half

    @property
    def greedy_evaluations(self) -> int:
        """Return how many sets a greedy search measures."""
        n, last = len(self.game), int(self.counts[-1])
        once = 0 if self.removed is not None else sum(n - k for k in range(last))
        return once * (3 if self.folds else 1)

    @property
    def evaluations(self) -> int:
        """Return how many sets are measured in all."""
        return self.greedy_evaluations + len(self._coalitions()[0])

    def estimate(self) -> RunEstimate:
        """Return what the run will take."""
        if self.removed is None:
            return self.game.estimate(self.evaluations)
        return self.game.estimate(self._gates(self._coalitions()[0]))

    def _groups(self) -> list[tuple[list[list[int]], np.ndarray]]:
        """Return the ranking and its halves, bootstrap draws and random orders, with counts."""
        ranked = [] if self.removed is None else [self.removed, *self.half_orders[:2]]
        return [
            (ranked, self.counts),
            (self.half_orders[2:], self.coarse),
            (self.orders, self.coarse),
        ]

    def values(self, progress: Progress, before: int) -> list[np.ndarray]:
        """Return `[order, count, prompt]` of the ranking, bootstrap draws and random orders."""
        out, index = self._coalitions()
        total = before + len(out)

        def tell(what: str, done: int, of: int) -> None:
            progress(what, before + done, total)

        n = len(self.game.task)
        table = self.game.values(self._gates(out), progress=tell).numpy() if out else np.empty(())
        paths = []
        for orders, counts in self._groups():
            rows, index = index[: len(orders) * len(counts)], index[len(orders) * len(counts) :]
            shape = (len(orders), len(counts), n)
            paths.append(table[rows].reshape(shape) if rows else np.empty(shape))
        return paths

    def _coalitions(self) -> tuple[list[frozenset[int]], list[int]]:
        """Return every distinct set of removed players, and the sets that each order needs."""
        number: dict[frozenset[int], int] = {}
        index = []
        for orders, counts in self._groups():
            for order in orders:
                for count in counts:
                    out = frozenset(order[:count])
                    index.append(number.setdefault(out, len(number)))
        return list(number), index

    def _gates(self, out: list[frozenset[int]]) -> Tensor:
        gates = torch.ones(len(out), len(self.game), dtype=torch.double)
        for row, players in enumerate(out):
            gates[row, list(players)] = 0
        return gates


def plan_pruning(
    model: Model,
    task: Task,
    ranking: Ranked | None,
    how: str,
    order: str,
    kind: str,
    n_random: int,
    seed: int,
    steps: int | Sequence[int] | None,
    name: str | None,
    options: dict[str, Any],
    held_out: bool,
    n_loops: int,
) -> PruningPlan:
    """Check what was asked, and return the orders and counts of the run."""
    _check(ranking, how, order, n_random)
    if n_loops < 0 or n_loops == 1:
        raise OptionError(f"n_loops={n_loops}; an interval needs at least 2 loops (0 omits it)")
    ranked, given = None, []
    if isinstance(ranking, (Importance, HeadTable)):
        ranked = Ranking.of(ranking)
        chosen = {"players", "stack", "heads", "without"} & set(options)
        if ranked.players is not None and not chosen:
            absent = [s.name for s in ranked.players.member if s not in model.sites]
            if absent:
                raise OptionError(
                    f"the ranking is of another model, {ranked.about['model']}: {model.name} has "
                    f"no attention {absent[0]} of that shape"
                )
            options = options | {"players": ranked.players}
    elif isinstance(ranking, str):
        raise OptionError(f"the ranking is the text {ranking!r}; give a list of players")
    elif ranking is not None:
        given = list(ranking)
    game = Game(model, task, kind=kind, seed=seed, **options)
    labels = game.players.labels
    if len(game) < 2:
        raise OptionError(f"{labels[0]} is the only player; pruning needs more heads")
    removed, called, place = None, "greedy", []
    if ranked is not None:
        require_all(labels, ranked.labels)
        place = [ranked.labels.index(label) for label in labels]
        removed = _ordered(ranked.helps[place], order)
        called = ranked.name
    elif ranking is not None:
        removed, called = given_order(given, labels), "given order"
        removed = removed[::-1] if order == "least-first" else removed
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(game)).tolist() for _ in range(n_random)]
    counts, coarse = removal_counts(steps, len(game))
    ranked_on = _ranked_on(ranked, how, task)
    every, halves = [], []
    if held_out and ranked_on == "these prompts":
        if how == "greedy":
            every = folds(len(task), 0, seed, task.clusters)
        elif ranked is not None and ranked.per_prompt is not None:
            values = ranked.per_prompt[place]
            magnitude = ranked.magnitude

            def rank(weight: np.ndarray) -> list[int]:
                mean = values @ weight / weight.sum()
                return _ordered(np.abs(mean) if magnitude else mean, order)

            every = folds(len(task), n_loops if n_random else 0, seed, task.clusters)
            halves = fold_orders(every, rank)
    return PruningPlan(
        game,
        counts,
        coarse,
        removed,
        orders,
        order == "most-first",
        name or called,
        ranked_on,
        every,
        halves,
    )


def _ordered(helps: np.ndarray, order: str) -> list[int]:
    return ordered(helps, lowest=order == "least-first")


def _ranked_on(ranked: Ranking | None, how: str, task: Task) -> str:
    """Return the prompts that the ranking was made on, if they are known."""
    if how == "greedy":
        return "these prompts"
    of = None if ranked is None else ranked.about.get("prompts_hash")
    if of is None:
        return "unknown"
    return "these prompts" if of == task.about()["prompts_hash"] else "other prompts"


def _check(ranking: Ranked | None, how: str, order: str, n_random: int) -> None:
    if how not in HOW:
        raise UnknownName("way of pruning", how, HOW)
    if order not in ORDERS:
        raise UnknownName("order of pruning", order, ORDERS)
    if (ranking is None) != (how == "greedy"):
        if how == "greedy":
            raise OptionError("greedy pruning makes its own ranking; omit ranking=")
        raise OptionError("one-shot pruning needs a ranking; or use how='greedy'")
    if n_random < 0 or n_random == 1:
        raise OptionError(f"n_random={n_random}; use at least 2 random orders (0 omits the band)")
