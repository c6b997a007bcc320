"""Pairwise interactions of heads: redundancy or mutual dependence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from interp.causal.game.chain import Playable
from interp.causal.game.game import Game
from interp.causal.importance import Importance, model_provenance
from interp.causal.shapley_values.permutations import target_reached
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
from interp.core.intervals import mean_intervals
from interp.core.presenter import present
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.steps import finishing
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.model.model import Model

Index = Literal["shapley", "banzhaf"]
INDICES = ("shapley", "banzhaf")
TOGETHER = 8
"""Maximum number of players whose coalitions are all run on each sampled background."""
DEFAULT_SAMPLES = 32
TOGETHER_HELPS = "(+ need each other)"
"""Text after the unit of an interaction."""
_EXACT_OF = 12


def interaction_rows(
    index: str,
    method: str,
    players: Sequence[str],
    pairs: Int[np.ndarray, "pair 2"],
    per_prompt: Float[np.ndarray, "pair prompt"],
    sampling: tuple[Float[np.ndarray, " pair"], float],
    unit: str,
    made: Mapping[str, Any],
    clusters: tuple[str, ...] | None = None,
) -> ResultRows:
    """Return a row per pair of players; see `interactions` for the columns."""
    first, second = pairs.T
    columns: dict[str, Any] = {
        "first": [players[i] for i in first],
        "second": [players[i] for i in second],
        "score": per_prompt.mean(1),
        "sem": np.hypot(standard_error(per_prompt, clusters), sampling[0]),
        "sampling_sem": sampling[0],
        "n": per_prompt.shape[1],
        "clusters": grouped.cluster_count(per_prompt.shape[1], clusters),
        "unit": unit,
        "index": index,
        "method": method,
    }
    columns |= mean_intervals(per_prompt, clusters=clusters, others=(sampling,)).columns
    facts = {
        "metric": f"{index}_interaction",
        "players": tuple(players),
        "sampling_df": sampling[1],
    }
    return ResultRows(
        "Interactions",
        columns,
        ("first", "second"),
        made,
        facts,
        per_prompt,
        arrays={"pairs": pairs},
        clusters=clusters,
        by="abs",
        interval_by="own",
        shown_by="score",
    )


def bounds_of_interactions(found: ResultRows, level: float) -> np.ndarray:
    """Return each interval over prompts and samples; see `interp.core.intervals`."""
    sampling = (found.sampling_sem, found.sampling_df)
    return mean_intervals(found.per_prompt, level, clusters=found.clusters, others=(sampling,)).ends


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
) -> ResultRows:
    """Compute the interaction index of every pair of some players, with all others as players.

    For a pair it is the mean over coalitions S of the others of v(S and both) - v(S and one) - v(S
    and the other) + v(S): whether a head matters more or less when the other is active. With
    "shapley" all sizes of S have equal weight (Grabisch and Roubens 1999), with "banzhaf" all
    coalitions do. v is the task's value, times -1 for a loss: redundant heads are below zero, heads
    that depend on each other above it.

    Args:
        model: the model.
        task: the task to measure.
        among: labels of players, or an `Importance` of the same players, of which the first `top`
            are used; by default all players, up to 16.
        top: number of players taken from an importance.
        index: "shapley" or "banzhaf".
        method: "exact" runs all coalitions of up to 16 players; "sampled" runs all coalitions of up
            to 8 chosen ones on random backgrounds of the others, in complementary pairs; "auto" is
            exact up to 12 players or if `max_evaluations` allows it.
        kind: see `interp.causal.shapley`.
        target_sem: see `interp.causal.shapley`; without a target or budget, 32 pairs of backgrounds
            are used.
        max_evaluations: see `interp.causal.shapley`.
        seed: see `interp.causal.shapley`.
        progress: see `Progress`.
        **options: options of `Game`.

    Returns:
        One row per pair, ordered by absolute value: first, second, score, sem over prompts and
        samples together, sampling_sem, n, clusters, unit, index, method, low, high (95 %) and
        why_no_interval. Positive: the two depend on each other; negative: they are redundant, in
        every task. Facts: players, their labels; sampling_df, degrees of freedom of the error over
        samples. By row: pairs, the numbers of both players.

    Raises:
        OptionError: there are fewer than two players, too many, or the budget is too small.
        UnknownName: a name is not a player, or the index or method is not known.

    Unit: of the task.

    Cost: 2^n coalitions of up to 16 heads, or 32 pairs of backgrounds.

    Null: none.

    Not for: heads that were chosen because they scored high one by one: this misses backup heads.

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
        per_prompt, sem, count = exact_interactions(game, players, index=index, progress=progress)
    else:
        per_prompt, sem, count = sampled_interactions(
            game,
            players,
            index=index,
            target_sem=target_sem,
            max_evaluations=max_evaluations,
            seed=seed,
            progress=progress,
        )
    about = model_provenance(model) | game.about()
    about |= {"index": index, "method": method, "made_by": "interp.causal.interactions"}
    about["sign"] = "positive: the two depend on each other; negative: they are redundant"
    samples = count // (2 * 2 ** len(players))  # one pair of backgrounds each
    df = math.inf if method == "exact" else samples - 1
    about["evaluations"] = count
    return interaction_rows(
        index,
        method,
        game.players.labels,
        _pairs(players),
        task.sign * per_prompt + 0.0,
        (sem, df),
        f"{task.unit} {TOGETHER_HELPS}",
        about,
        task.clusters,
    )


def exact_interactions(
    game: Playable, players: Sequence[int], *, index: str = "shapley", progress: Told = None
) -> tuple[Float[np.ndarray, "pair prompt"], Float[np.ndarray, " pair"], int]:
    """Return exact interactions from all coalitions, their error (0) and the evaluations."""
    from interp.causal.shapley_values.exact import shapley_weights

    n = len(game)
    check_exact(n, "the exact mode", "method='sampled' with a few players in among=")
    table = subsets(n)
    report = None if progress is None else lambda k: progress(game_name(game), k, len(table))
    v = values(game, table, report)
    size = table.sum(1).astype(int)
    weights = shapley_weights(n - 1) if index == "shapley" else np.full(n - 1, 2.0 ** (2 - n))
    sign = 2 * table - 1
    per_pair = []
    for i, j in _pairs(players):
        others = size - table[:, i].astype(int) - table[:, j].astype(int)
        per_pair.append((weights[others] * sign[:, i] * sign[:, j]) @ v)
    return np.stack(per_pair), np.zeros(len(per_pair)), len(table)


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
    """Estimate interactions from all coalitions of a few players on random backgrounds.

    A background contains each of the others with probability p, its complement the rest; p is
    uniform on (0, 1) for "shapley" (the multilinear extension, Owen 1972) and 1/2 for "banzhaf".
    The average over the other chosen players uses the same p, without sampling.
    """
    n, k = len(game), len(players)
    if k > TOGETHER:
        raise OptionError(
            f"{k} players are too many: sampled interactions run 2^{k} coalitions on each "
            f"background, for at most {TOGETHER} players; name fewer in among="
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
        report = None
        if progress is not None:
            before, aim = len(means) * per_pair, min(most, len(means) + 1) * per_pair
            aim = most * per_pair if most < 2**62 else aim
            report = lambda d, b=before, a=aim: progress(game_name(game), b + d, a)  # noqa: E731
        v = values(game, gates, report)
        half = len(inner)
        sample = (_on(inner, v[:half], p) + _on(inner, v[half:], 1 - p)) / 2
        total = total + sample
        means.append(sample.mean(1))
    sem = standard_error(np.stack(means, -1))
    return np.reshape(total / len(means), (len(pairs), -1)), sem, len(means) * per_pair


def _on(
    inner: Float[np.ndarray, "coalition chosen"], v: Float[np.ndarray, "coalition prompt"], p: float
) -> Float[np.ndarray, "pair prompt"]:
    """Return interactions on one background, with the other chosen players at probability p."""
    k = inner.shape[1]
    chance = np.where(inner == 1, p, 1 - p)
    sign = 2 * inner - 1
    per_pair = []
    for i, j in _pairs(range(k)):
        rest = np.delete(chance, [i, j], 1).prod(1)
        per_pair.append((rest * sign[:, i] * sign[:, j]) @ v)
    return np.stack(per_pair)


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
        raise OptionError(f"interactions need at least two players; given: {chosen}")
    if len(set(chosen)) < len(chosen):
        raise OptionError(f"a player is named twice in among={chosen}; name each once")
    for label in chosen:
        if label not in labels:
            raise UnknownName("player", label, labels)
    return [labels.index(label) for label in chosen]


def interactions_figure(found: ResultRows) -> go.Figure:
    """Draw a heat map, player by player, blue above zero and orange below."""
    import plotly.graph_objects as go

    from interp.draw.colours import palette

    grid = np.full((len(found.players),) * 2, np.nan, dtype=np.float32)
    for (i, j), score in zip(found.pairs, found.score, strict=True):
        grid[i, j] = grid[j, i] = score
    played = sorted({int(i) for pair in found.pairs for i in pair})
    labels = [found.players[i] for i in played]
    size = float(np.abs(found.score).max(initial=0.0)) or 1.0
    unit, index = (next(iter(found.columns[name]), "") for name in ("unit", "index"))
    figure = go.Figure(
        go.Heatmap(
            x=labels,
            y=labels,
            z=grid[np.ix_(played, played)],
            zmin=-size,
            zmax=size,
            colorscale=palette(True),
            colorbar={"title": {"text": unit}},
        )
    )
    figure.update_layout(template="plotly_white", title=f"{index} interactions")
    figure.update_yaxes(autorange="reversed")
    return figure


present(
    "Interactions",
    plot=interactions_figure,
    bounds=bounds_of_interactions,
    text="interp.report.printed.importance:interactions_text",
)
