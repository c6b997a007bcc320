"""Sets of heads to ablate: the top heads of a score, and matched random sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.causal.game.players import Players
from interp.core.clusters import cluster_count, draw_weights, numbered
from interp.core.errors import OptionError, UnknownName
from interp.core.standard_errors import standard_error
from interp.core.statistics import (
    DRAWS,
    percentile_interval,
    redraw_columns,
    redraw_counts,
    tails_of,
)
from interp.core.ties import ordered_by
from interp.heads.causal_check.one_check import MOST_ALONE, CausalCheck
from interp.heads.roles.decide import base_name
from interp.heads.roles.declared import ROLES

if TYPE_CHECKING:
    from torch import Tensor

    from interp.causal.game.game import Game
    from interp.heads.roles.result import HeadRoles

ORDERS = ("score", "lowest", "null")
TOP = 3
"""Heads of a score that are ablated if no head has the role that the score decides."""


@dataclass(frozen=True)
class Chosen:
    """Players of a game that are ablated together, in rising order."""

    name: str
    players: tuple[int, ...]


@dataclass(frozen=True)
class Matched:
    """Random sets of the same shape; `possible` is the number that exist."""

    sets: tuple[Chosen, ...]
    possible: int

    @property
    def all_of_them(self) -> bool:
        """True if every possible set is included."""
        return len(self.sets) == self.possible


@dataclass(frozen=True)
class RoleHolders:
    """Players of a game that hold the role which a score decides; none if it decides no role."""

    role: str = ""
    players: frozenset[int] = frozenset()


def held_role(game: Game, assigned: HeadRoles | None, name: str) -> RoleHolders:
    """Return the heads with the role that a metric decides; none without roles."""
    metric = base_name(name)
    if assigned is None:
        return RoleHolders()
    for role in ROLES:
        if any(need.decides and need.metric == metric for need in role.needs):
            holders = [x for x in assigned.assigned if role.id in x.roles]
            held = {(x.stack, x.layer, x.head) for x in holders}
            places = _places(game).items()
            return RoleHolders(role.noun, frozenset(p for p, at in places if at in held))
    return RoleHolders()


@dataclass(frozen=True)
class Compared:
    """The ablated set of a score with all sets that it is compared with.

    Args:
        top: the set of the score.
        others: random sets of the same layers.
        free: random sets of any layers.
        alone: each head of the set alone.
        held: the heads with the role that the score decides.
    """

    top: Chosen
    others: Matched
    free: Matched
    alone: tuple[Chosen, ...]
    held: RoleHolders

    @property
    def every(self) -> tuple[Chosen, ...]:
        """All sets, in the order of the fields."""
        return (self.top, *self.others.sets, *self.free.sets, *self.alone)


def compared_sets(
    game: Game, top: Chosen, held: RoleHolders, n: int, seed: int, one_by_one: bool
) -> Compared:
    """Draw the sets of heads that the set of a score is compared with."""
    if len(top.players) == len(game) and held.players != frozenset(top.players):
        raise OptionError(
            f"{top.name}: the {len(top.players)} top heads are all heads of their layers and of "
            f"the model, so no other set exists; lower k"
        )
    single = one_by_one and 1 < len(top.players) <= MOST_ALONE
    alone = tuple(Chosen("alone", (player,)) for player in top.players) if single else ()
    others = matched_sets(game, top, n, seed)
    return Compared(top, others, anywhere(game, top, n, seed), alone, held)


def chosen_heads(
    game: Game, table: Any, name: str, k: int | None, by: str, held: RoleHolders
) -> Chosen:
    """Return the heads of one score that are ablated.

    Without k these are all heads with the role that the score decides, or the first `TOP` where no
    head has one or another order is asked for.
    """
    if isinstance(table, Mapping):
        named = Players.of(game.model, {name: table[name]})
        heads = {(site.stack, site.layer, h) for site, h in named.heads_of(0)}
        present = {p for p, at in _places(game).items() if at in heads}
        if len(present) < len(heads):
            raise OptionError(
                f"{name}: {len(heads) - len(present)} of its heads are not among the "
                f"players of the game"
            )
        return Chosen(name, tuple(sorted(present)))
    if by not in ORDERS:
        raise UnknownName("order", by, ORDERS)
    if k is None and by == "score" and held.players:
        return Chosen(name, tuple(sorted(held.players)))
    if k is not None and k < 1:
        raise OptionError(
            f"k={k} is not valid: k is the number of heads ablated together, at least 1"
        )
    rows = table.where(metric=name).to_pandas()
    value = rows["score"] - (rows["null"].fillna(0.0) if by == "null" else 0.0)
    value = -value if by == "lowest" else value
    keys = zip(rows["stack"], rows["layer"], rows["head"], strict=True)
    scored = {key: v for key, v in zip(keys, value.tolist(), strict=True) if not math.isnan(v)}
    players = {p: scored[at] for p, at in _places(game).items() if at in scored}
    if k is None:
        k = max(min(TOP, len(players) - 1), 1)
    if k > len(players):
        raise OptionError(f"{name}: k={k} exceeds the {len(players)} heads with a score; lower k")
    best = ordered_by(sorted(players), players.__getitem__)[:k]
    return Chosen(name, tuple(sorted(best)))


def matched_sets(game: Game, top: Chosen, n: int, seed: int) -> Matched:
    """Draw up to n different sets with as many heads in each layer, none equal to the top set."""
    layers: list[tuple[list[int], int]] = []
    for index in game.players.member.values():
        here = sorted({int(i) for i in index if i >= 0})
        out = sum(p in top.players for p in here)
        if out:
            layers.append((here, out))
    return _drawn(layers, top, n, seed)


def anywhere(game: Game, top: Chosen, n: int, seed: int) -> Matched:
    """Draw up to n different sets of as many heads from any layers, none equal to the top set."""
    return _drawn([(list(range(len(game))), len(top.players))], top, n, seed)


def _drawn(groups: list[tuple[list[int], int]], top: Chosen, n: int, seed: int) -> Matched:
    """Draw sets with so many players of each group; none if the top is the only one."""
    possible = math.prod(math.comb(len(here), out) for here, out in groups) - 1
    if possible <= n:
        parts = [itertools.combinations(here, out) for here, out in groups]
        every = (tuple(sorted(itertools.chain(*p))) for p in itertools.product(*parts))
        sets = [players for players in every if players != top.players]
    else:
        rng, drawn = np.random.default_rng(seed), dict[tuple[int, ...], None]()
        while len(drawn) < n:
            picks = [rng.choice(here, out, replace=False).tolist() for here, out in groups]
            players = tuple(sorted(itertools.chain(*picks)))
            if players != top.players:
                drawn[players] = None
        sets = list(drawn)
    return Matched(tuple(Chosen("random", players) for players in sets), possible)


def judged(
    game: Game,
    purpose: str,
    compared: Compared,
    values: Tensor,
    *,
    level: float,
    seed: int,
    same_prompts: bool,
) -> CausalCheck:
    """Return the statistics of one score on one task."""
    top, others, free, held = compared.top, compared.others, compared.free, compared.held
    worse = -1.0 if game.task.higher_is_better else 1.0
    singles = len(values) - len(compared.alone)
    clean, every, each = game.clean.numpy(), values[:singles].numpy(), values[singles:].numpy()
    rows = every[: 1 + len(others.sets)]
    apart = every[1 + len(others.sets) :]
    damage = worse * (every.mean(1) - clean.mean())
    tails = tails_of(level)
    labels = game.players.labels
    middle, low, high = _middle(rows[1:], tails)
    any_middle, any_low, any_high = _middle(apart, tails)
    point = _compared(rows.mean(1)[:1], np.array([middle]), clean.mean())
    drawn = _redrawn(rows, clean, seed, game.task.clusters, worse, sets=not others.all_of_them)
    edges = {name: _edges(x, tails) for name, x in drawn.items()}
    rank = 1 + int((damage[1 : len(rows)] >= damage[0]).sum())
    any_rank = 1 + int((damage[len(rows) :] >= damage[0]).sum())
    chance = game.task.chance
    return CausalCheck(
        model=game.model.name,
        metric=top.name,
        task=game.task.name,
        purpose=purpose,
        kind=game.kind,
        unit=game.task.unit,
        higher_is_better=game.task.higher_is_better,
        heads=tuple(labels[p] for p in top.players),
        k=len(top.players),
        clean=float(clean.mean()),
        clean_sem=float(standard_error(clean[None], game.task.clusters)[0]),
        chance=math.nan if chance is None else chance,
        out=float(rows[0].mean()),
        random=middle,
        random_low=low,
        random_high=high,
        any_random=any_middle,
        any_low=any_low,
        any_high=any_high,
        damage=float(damage[0]),
        transfers=(),
        **{name: float(x[0]) for name, x in point.items()},
        **{f"{name}_low": low for name, (low, _) in edges.items()},
        **{f"{name}_high": high for name, (_, high) in edges.items()},
        p=rank / (1 + len(others.sets)) if others.sets else math.nan,
        rank=rank,
        least_p=1 / (1 + len(others.sets)),
        n_random=len(others.sets),
        n_possible=others.possible,
        any_p=any_rank / (1 + len(free.sets)),
        any_rank=any_rank,
        any_least_p=1 / (1 + len(free.sets)),
        n_any=len(free.sets),
        n_any_possible=free.possible,
        n_prompts=rows.shape[1],
        same_prompts=same_prompts,
        n_clusters=cluster_count(rows.shape[1], game.task.clusters),
        alone=tuple(each.mean(1).tolist()),
        alone_sem=tuple(standard_error(each - clean, game.task.clusters).tolist()),
        role=held.role,
        holders=len(held.players),
        holding=len(held.players & set(top.players)),
        shared=_shared(others, held),
        any_shared=_shared(free, held),
    )


def _shared(sets: Matched, held: RoleHolders) -> float:
    """Return the mean number of heads with the role in a set; NaN without sets or role."""
    if not sets.sets or not held.players:
        return math.nan
    return float(np.mean([len(held.players & set(one.players)) for one in sets.sets]))


def _middle(rows: np.ndarray, tails: tuple[float, float]) -> tuple[float, float, float]:
    """Return the median of the sets' means and the quantiles around it; NaN without sets."""
    if not len(rows):
        return math.nan, math.nan, math.nan
    means = rows.mean(1)
    low, high = percentile_interval(means, tails).tolist()
    return float(np.median(means)), low, high


def _compared(out: np.ndarray, random: np.ndarray, clean: Any) -> dict[str, np.ndarray]:
    """Compare with random sets and the clean run; the ratio needs values above zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((out >= 0) & (random > 0), out / random, math.nan)
        times = np.where((out >= 0) & (clean > 0), out / clean, math.nan)
    return {"difference": out - random, "ratio": ratio, "times_clean": times}


def _redrawn(
    rows: np.ndarray,
    clean: np.ndarray,
    seed: int,
    clusters: Sequence[str] | None,
    worse: float,
    *,
    sets: bool,
) -> dict[str, np.ndarray]:
    """Return bootstrap draws of the comparisons and of the damage; NaN for a single cluster."""
    names = ("difference", "ratio", "times_clean")
    which = numbered(rows.shape[1], clusters)
    n = int(which.max()) + 1
    if n < 2:
        return {name: np.full(1, math.nan) for name in (*names, "damage")}
    rng = np.random.default_rng([seed, 1])
    weight = draw_weights(redraw_counts(n, DRAWS, rng), which)
    means, before = rows @ weight.T, weight @ clean  # [set, draw], [draw]
    damage = {"damage": worse * (means[0] - before)}
    if len(rows) < 2:
        return {name: np.full(1, math.nan) for name in names} | damage
    random = means[1:]
    if sets:  # the sets are resampled too, unless every possible set was run
        which = redraw_columns(len(random), DRAWS, rng)
        random = np.take_along_axis(random, which, axis=0)
    return _compared(means[0], np.median(random, axis=0), before) | damage


def _edges(x: np.ndarray, tails: tuple[float, float]) -> tuple[float, float]:
    if np.isnan(x).any():
        return math.nan, math.nan
    low, high = percentile_interval(x, tails)
    return float(low), float(high)


def _places(game: Game) -> dict[int, tuple[str, int, int]]:
    """Return the stack, layer and head of each player."""
    return {
        number: (site.stack, site.layer, h)
        for site, index in game.players.member.items()
        for h, number in enumerate(index.tolist())
        if number >= 0
    }
