"""Pairwise interactions: whether two heads do the same work or need each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from interp.causal.game.chain import Playable
from interp.causal.game.game import Game, Progress
from interp.causal.importance import Importance, model_provenance, standard_error
from interp.causal.shapley_values.permutations import standard_error_of, target_reached
from interp.causal.shapley_values.solution import (
    EXACT,
    Told,
    check_budget,
    check_exact,
    game_name,
    subsets,
    values,
)
from interp.causal.task import Task
from interp.core import clusters as grouped
from interp.core.errors import OptionError, UnknownName
from interp.core.intervals import around
from interp.core.result import Result
from interp.core.steps import finishing
from interp.model.given import takes_model

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

    from interp.model.model import Model

Index = Literal["shapley", "banzhaf"]
INDICES = ("shapley", "banzhaf")
TOGETHER = 8
"""Players whose coalitions are all run on each sampled background."""
DEFAULT_SAMPLES = 32
TOGETHER_HELPS = "(+ need each other)"
"""Text after the unit of an interaction."""
_EXACT_OF = 12


@dataclass(frozen=True, eq=False, repr=False)
class Interactions(Result):
    """Interaction of each pair of players, in the task's unit.

    Positive: the two need each other; negative: they stand in for each other. The first pairs are
    the strongest of either sign; intervals hold prompts and samples, see `bounds`.

    Args:
        index: "shapley" or "banzhaf".
        method: "exact" or "sampled".
        pairs: numbers in `players` of both players of each pair.
        per_prompt: the interaction of each pair on each prompt.
        sampling_sem: the error over samples, from `sampling_df` + 1 of them; 0 where all
            coalitions were seen.
        clusters: a label per prompt where prompts share something; errors are over clusters.
    """

    index: str
    method: str
    players: tuple[str, ...]
    pairs: Int[np.ndarray, "pair 2"]
    per_prompt: Float[np.ndarray, "pair prompt"] = field(repr=False)
    sampling_sem: Float[np.ndarray, " pair"] = field(repr=False)
    evaluations: int
    unit: str
    higher_is_better: bool
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)
    _order = "score"
    _units = ("first", "second")
    _per_row = ("pairs", "per_prompt", "sampling_sem")
    _by = "abs"
    sampling_df: float = math.inf
    clusters: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def score(self) -> Float[np.ndarray, " pair"]:
        """Mean over prompts."""
        return self.per_prompt.mean(1)

    @property
    def sem(self) -> Float[np.ndarray, " pair"]:
        """Over prompts and samples together."""
        return np.sqrt(self._over_prompts**2 + self.sampling_sem**2)

    @property
    def _over_prompts(self) -> Float[np.ndarray, " pair"]:
        return standard_error(self.per_prompt, self.clusters)

    def bounds(self, level: float = 0.95) -> Float[np.ndarray, "pair 2"]:
        """Low and high end of each interval over prompts and samples, by t quantiles.

        NaN for one prompt or cluster.

        Raises:
            OptionError: a level outside 0 to 1.
        """
        parts = [
            (
                self._over_prompts,
                grouped.cluster_count(self.per_prompt.shape[1], self.clusters) - 1,
            ),
            (self.sampling_sem, self.sampling_df),
        ]
        return around(self.score, parts, level)

    def helps(self) -> Float[np.ndarray, " pair"]:
        """The scores: positive, the pair does more than both alone; negative, they stand in for
        each other. Every task gives them that sign.
        """
        return self.score

    def _facts(self) -> dict[str, Any]:
        return {"metric": f"{self.index}_interaction"}

    def _rows(self) -> pandas.DataFrame:
        """One row per pair: first, second, score, sem, low, high (95 %), sampling_sem, n, clusters,
        unit, index, method.
        """
        import pandas

        first, second = self.pairs.T
        low, high = self.bounds().T
        return pandas.DataFrame(
            {
                "first": [self.players[i] for i in first],
                "second": [self.players[i] for i in second],
                "score": self.score,
                "sem": self.sem,
                "low": low,
                "high": high,
                "sampling_sem": self.sampling_sem,
                "n": self.per_prompt.shape[1],
                "clusters": grouped.cluster_count(self.per_prompt.shape[1], self.clusters),
                "unit": self.unit,
                "index": self.index,
                "method": self.method,
            }
        )

    def plot(self) -> go.Figure:
        """A heat map, player by player, blue above zero and orange below."""
        import plotly.graph_objects as go

        from interp.draw.colours import palette

        grid = np.full((len(self.players),) * 2, np.nan, dtype=np.float32)
        for (i, j), score in zip(self.pairs, self.score, strict=True):
            grid[i, j] = grid[j, i] = score
        played = sorted({int(i) for pair in self.pairs for i in pair})
        labels = [self.players[i] for i in played]
        size = float(np.abs(self.score).max(initial=0.0)) or 1.0
        figure = go.Figure(
            go.Heatmap(
                x=labels, y=labels, z=grid[np.ix_(played, played)], zmin=-size, zmax=size,
                colorscale=palette(True), colorbar={"title": {"text": self.unit}},
            )
        )  # fmt: skip
        figure.update_layout(template="plotly_white", title=f"{self.index} interactions")
        figure.update_yaxes(autorange="reversed")
        return figure


@takes_model
@finishing()
def interactions(
    model: Model,
    task: Task,
    *,
    among: Sequence[str] | Importance | None = None,
    top: int = 4,
    index: Index = "shapley",
    method: Literal["auto", "exact", "sampled"] = "auto",
    kind: str = "zero",
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Interactions:
    """Interaction index of every pair of some players, all others playing too.

    For a pair it is the mean over coalitions S of the others of
    v(S and both) - v(S and one) - v(S and the other) + v(S): whether a head matters more or less
    when the other is at work. With "shapley" all sizes of S count alike (Grabisch and Roubens
    1999), with "banzhaf" all coalitions do. v is the task's value, times -1 for a loss: two heads
    that stand in for each other are below zero, two that need each other above it.

    Args:
        among: labels of players, or an `Importance` of the same players whose `top` ones are
            taken; all players where not given, up to 16.
        method: "exact" runs all coalitions of up to 16 players; "sampled" runs all coalitions of
            up to 8 chosen ones on random backgrounds of the others, in opposite pairs; "auto" is
            exact up to 12 players or where `max_evaluations` allows it.
        target_sem, max_evaluations: as for `interp.causal.shapley`; 32 pairs of backgrounds
            unless one is given.
        kind, seed, progress, options: as there.

    Raises:
        OptionError: fewer than two players, too many, or a budget that does not reach.
        UnknownName: a player that does not play, another index or method.

    Unit: of the task.

    Cost: 2^n coalitions of up to 16 heads, or 32 pairs of backgrounds.

    Null: none.

    Not for: heads that were chosen because they scored high one by one: a backup is not among them.

    Reference: Grabisch and Roubens 1999, "An axiomatic approach to the concept of interaction among
    players in cooperative games".
    """
    if index not in INDICES:
        raise UnknownName("index of interaction", index, INDICES)
    if method not in ("auto", "exact", "sampled"):
        raise UnknownName("method of interactions", method, ("auto", "exact", "sampled"))
    game = Game(model, task, kind=kind, seed=seed, **options)
    players = _players(game, among, top)
    allowed = 2**_EXACT_OF if max_evaluations is None else max_evaluations
    if method == "auto":
        method = "exact" if len(game) <= EXACT and 2 ** len(game) <= allowed else "sampled"
    if method == "exact":
        most = 2 ** min(len(game), EXACT)
        check_budget(len(game), target_sem, max_evaluations, least=most, why="the exact mode")
        found, sem, count = exact_interactions(game, players, index=index, progress=progress)
    else:
        found, sem, count = sampled_interactions(
            game, players, index=index, target_sem=target_sem, max_evaluations=max_evaluations,
            seed=seed, progress=progress,
        )  # fmt: skip
    about = model_provenance(model) | game.about()
    about |= {"index": index, "method": method, "made_by": "interp.causal.interactions"}
    about["sign"] = "positive: the two need each other; negative: they stand in for each other"
    samples = count // (2 * 2 ** len(players))  # a pair of backgrounds each
    df = math.inf if method == "exact" else samples - 1
    return Interactions(
        index, method, game.players.labels, _pairs(players), task.sign * found + 0.0, sem, count,
        f"{task.unit} {TOGETHER_HELPS}", task.higher_is_better, about, df,
        task.clusters,
    )  # fmt: skip


def exact_interactions(
    game: Playable, players: Sequence[int], *, index: str = "shapley", progress: Told = None
) -> tuple[Float[np.ndarray, "pair prompt"], Float[np.ndarray, " pair"], int]:
    """From all coalitions: interactions, their error (0) and the number of evaluations."""
    from interp.causal.shapley_values.exact import shapley_weights

    n = len(game)
    check_exact(n, "the exact mode", "method='sampled' with a few players in among=")
    table = subsets(n)
    told = None if progress is None else lambda k: progress(game_name(game), k, len(table))
    v = values(game, table, told)
    size = table.sum(1).astype(int)
    weights = shapley_weights(n - 1) if index == "shapley" else np.full(n - 1, 2.0 ** (2 - n))
    sign = 2 * table - 1
    found = []
    for i, j in _pairs(players):
        others = size - table[:, i].astype(int) - table[:, j].astype(int)
        found.append((weights[others] * sign[:, i] * sign[:, j]) @ v)
    return np.stack(found), np.zeros(len(found)), len(table)


def sampled_interactions(
    game: Playable,
    players: Sequence[int],
    *,
    index: str = "shapley",
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    progress: Told = None,
) -> tuple[Float[np.ndarray, "pair prompt"], Float[np.ndarray, " pair"], int]:
    """From all coalitions of a few players on random backgrounds of the others.

    A background holds each of the others with probability p, its opposite the rest with 1 - p;
    p is uniform on (0, 1) for "shapley" (the multilinear extension, Owen 1972) and 1/2 for
    "banzhaf". The other chosen players are averaged over with the same p, without sampling.
    """
    n, k = len(game), len(players)
    if k > TOGETHER:
        raise OptionError(
            f"{k} players: sampled interactions run 2^{k} coalitions on each background, for "
            f"{TOGETHER} players at most; name fewer in among="
        )
    inner = subsets(k)
    per_pair = 2 * len(inner)
    check_budget(
        n, target_sem, max_evaluations, least=per_pair, why=f"one pair of backgrounds of {k}"
    )
    most = DEFAULT_SAMPLES if max_evaluations is None else max_evaluations // per_pair
    if max_evaluations is None and target_sem is not None:
        most = 2**62
    pairs, total, means = _pairs(players), 0.0, []
    while len(means) < most:
        if target_reached(means, target_sem, 8):
            break
        rng = np.random.default_rng([seed, 4, len(means)])
        p = rng.random() if index == "shapley" else 0.5
        inside = (rng.random(n) < p).astype(float)
        gates = np.concatenate([np.tile(x, (len(inner), 1)) for x in (inside, 1 - inside)])
        gates[:, list(players)] = np.tile(inner, (2, 1))
        told = None
        if progress is not None:
            before, aim = len(means) * per_pair, min(most, len(means) + 1) * per_pair
            aim = most * per_pair if most < 2**62 else aim
            told = lambda d, b=before, a=aim: progress(game_name(game), b + d, a)  # noqa: E731
        v = values(game, gates, told)
        half = len(inner)
        sample = (_on(inner, v[:half], p) + _on(inner, v[half:], 1 - p)) / 2
        total = total + sample
        means.append(sample.mean(1))
    sem = standard_error_of(means)
    return np.reshape(total / len(means), (len(pairs), -1)), sem, len(means) * per_pair


def _on(
    inner: Float[np.ndarray, "coalition chosen"], v: Float[np.ndarray, "coalition prompt"], p: float
) -> Float[np.ndarray, "pair prompt"]:
    """Interactions on one background, the other chosen players in with probability p."""
    k = inner.shape[1]
    chance = np.where(inner == 1, p, 1 - p)
    sign = 2 * inner - 1
    found = []
    for i, j in _pairs(range(k)):
        rest = np.delete(chance, [i, j], 1).prod(1)
        found.append((rest * sign[:, i] * sign[:, j]) @ v)
    return np.stack(found)


def _pairs(players: Sequence[int]) -> Int[np.ndarray, "pair 2"]:
    chosen = list(players)
    return np.array([(i, j) for a, i in enumerate(chosen) for j in chosen[a + 1 :]])


def _players(game: Game, among: Sequence[str] | Importance | None, top: int) -> list[int]:
    labels = game.players.labels
    if among is None:
        check_exact(len(labels), "interactions of all players", "among= with the labels of a few")
        chosen = list(labels)
    elif isinstance(among, Importance):
        chosen = [among.players.labels[i] for i in among.order()[:top]]
    else:
        chosen = list(among)
    if len(set(chosen)) < 2:
        raise OptionError(f"interactions are between at least two players; given: {chosen}")
    if len(set(chosen)) < len(chosen):
        raise OptionError(f"a player is named twice in among={chosen}")
    for label in chosen:
        if label not in labels:
            raise UnknownName("player", label, labels)
    return [labels.index(label) for label in chosen]
