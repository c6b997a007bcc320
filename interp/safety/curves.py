"""Cumulative ablation of the top heads of a ranking: refusal, and damage to other behaviour.

    curves = safety_curves(model, table, refusal_log_odds(model, harmful), harmless_texts, k=10)

Every curve has a band of random heads of the same layers, as many in each layer at every step. A
ranking of safety heads lowers refusal far outside that band, while the loss on harmless prompts
stays inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.causal.comparison.ranking import Ranking, given_order
from interp.causal.game.game import Game
from interp.causal.importance import Importance
from interp.causal.pruning.result import PruningCurve
from interp.causal.task import Task
from interp.causal.text_tasks import next_token_task
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.core.steps import finishing
from interp.core.table import HeadTable
from interp.core.ties import ordered_by
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.model.model import Model

Array = np.ndarray


def curve_rows(safety: PruningCurve, harmless: PruningCurve, removed: Sequence[str]) -> ResultRows:
    """Return the rows of both curves; see `safety_curves`."""
    import pandas as pd

    both = (("safety", safety), ("harmless", harmless))
    rows = pd.concat(
        [curve.to_pandas().assign(task=name) for name, curve in both], ignore_index=True
    )
    facts = {"safety": safety, "harmless": harmless, "removed": tuple(removed)}
    why = "its two tasks have different prompts; .safety and .harmless have values"
    return ResultRows(
        "SafetyCurves",
        rows,
        ("task", "n_removed"),
        dict(safety.made),
        facts,
        why_no_per_prompt=why,
        arrays={"row": np.arange(len(rows))},
        interval_by="own",
    )


def bounds_of_curves(found: ResultRows, level: float) -> np.ndarray:
    """Return the confidence interval of each row over clusters of prompts, by t quantiles."""
    both = np.concatenate([found.safety.bounds(level), found.harmless.bounds(level)])
    return both[found.row]


def damage_at(curve: PruningCurve, k: int) -> float:
    """Return how much worse the task of a curve is with the top k heads ablated.

    Of the safety task this is the decrease of refusal, of the harmless one the damage.

    Args:
        curve: `safety` or `harmless` of `safety_curves`.
        k: Number of ablated heads.

    Raises:
        OptionError: k was not evaluated.
    """
    change = float(curve.value[_at(curve, k)]) - curve.clean
    return -change if curve.higher_is_better else change


def outside_band(curve: PruningCurve, k: int, level: float = 0.95) -> bool:
    """Return True if a curve is outside the band of random heads with k heads ablated."""
    at = _at(curve, k)
    low, high = curve.band(level)[at]
    return not low <= curve.value[at] <= high


@takes_model
@finishing()
def safety_curves(
    model: Model,
    ranking: HeadTable | Importance | Sequence[Any],
    safety: Task,
    harmless: Any,
    *,
    k: int = 10,
    kind: str = "zero",
    n_random: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> ResultRows:
    """Ablate the top 1, 2, ... k heads of a ranking, and random heads of the same layers.

    Args:
        model: The model.
        ranking: A table with one metric (the highest first), an importance, or heads in order; at
            least k heads.
        safety: The task that measures refusal, such as `refusal_log_odds(model, harmful)`.
        harmless: The task that measures damage, or prompts, whose mean loss per token is used.
        k: Number of heads to ablate.
        kind: Replacement of an ablated head; see `interp.causal.game.replacement`.
        n_random: Number of random orders. Each has other heads of the same layers, and top heads
            only where a layer has no others left. For a p value use
            `interp.circuits.head_checks`, whose sets are drawn from all heads.
        seed: Seed of the random orders.
        progress: Called with the name of the current work, how much is done and how much there is.
        **options: Options of `Game`: stack, resume, max_tokens, ...

    Returns:
        One row per task and number of ablated heads, first those of the safety task; the score is
        the task's value, its null the mean over random heads of the same layers. Facts: safety and
        harmless, the curve of each task (see `damage_at` and `outside_band`); removed, the heads in
        the order in which they are ablated.

    Reference: cumulative ablation as in Huang et al. 2025 (arXiv 2508.19697), there without a band.

    Raises:
        OptionError: The ranking has fewer than k heads or heads of another model, or fewer than two
            random orders are asked for.

    Unit: nats of refusal log odds, nats/token.

    Cost: One run over the prompts per number of heads and random order.

    Null: random orders of heads of the same layers.

    Not for: a p value: the random heads avoid the top ones. `interp.confirm` draws from all.
    """
    if n_random < 2:
        raise OptionError(
            f"n_random={n_random}; give at least 2 random orders, which the band needs"
        )
    task = harmless if isinstance(harmless, Task) else next_token_task(model, harmless)
    curves: list[PruningCurve] = []
    top: list[str] = []
    for each in (safety, task):
        game = Game(model, each, kind=kind, seed=seed, **options)
        name, order = _order(ranking, game)
        if not 1 <= k <= len(order):
            raise OptionError(
                f"k={k}; give 1 to {len(order)}, as many heads as the ranking {name} has"
            )
        order = order[:k]
        top = [game.players.labels[i] for i in order]
        orders = [order, *_same_layers(game, order, n_random, seed)]
        values = _values(game, orders, progress)
        provenance = model_provenance(model) | game.about()
        provenance |= {
            "ranking": name,
            "n_random": n_random,
            "random": "other heads of the same layers",
            "seed": seed,
        }
        provenance |= {"made_by": "interp.safety.safety_curves"}
        curves.append(
            PruningCurve(
                name,
                np.arange(k + 1),
                tuple(top),
                values[0],
                values[1:],
                len(game),
                "most-first",
                each.unit,
                each.higher_is_better,
                seed,
                provenance,
                clusters=each.clusters,
            )
        )
    return curve_rows(curves[0], curves[1], top)


def _order(ranking: Any, game: Game) -> tuple[str, list[int]]:
    """Return the ranking's name and its players, the most important first."""
    labels = list(game.players.labels)
    if not isinstance(ranking, (HeadTable, Importance)):
        if isinstance(ranking, str):
            raise OptionError(f"the ranking is a single text, {ranking!r}; give a list of heads")
        named = [x if x in labels else str(Head.parse(x)) for x in ranking]
        rest = [label for label in labels if label not in named]
        return "given order", given_order([*named, *rest], labels)[: len(named)]
    ranked = Ranking.of(ranking)
    score = dict(zip(ranked.labels, ranked.helps.tolist(), strict=True))
    absent = [label for label in score if label not in labels]
    if absent:
        raise OptionError(f"the ranking has {absent[0]}, which is not a head of {game.model.name}")
    known = [i for i, label in enumerate(labels) if label in score]
    return ranked.name, ordered_by(sorted(known), lambda i: score[labels[i]])


def _same_layers(game: Game, order: list[int], n: int, seed: int) -> list[list[int]]:
    """Draw random orders whose head at every step is in the same layer as the ranking's."""
    layers = [sorted({int(i) for i in x if i >= 0}) for x in game.players.member.values()]
    layer_of = {i: at for at, players in enumerate(layers) for i in players}
    rng = np.random.default_rng([seed, 5])
    orders = []
    for _ in range(n):
        drawn = [
            iter(sorted(rng.permutation(players).tolist(), key=lambda i: i in order))
            for players in layers
        ]
        orders.append([next(drawn[layer_of[i]]) for i in order])
    return orders


def _values(game: Game, orders: list[list[int]], progress: Progress | None) -> Array:
    """Return values `[order, count, prompt]`; equal sets of heads are run once."""
    number: dict[frozenset[int], int] = {}
    index = [
        number.setdefault(frozenset(order[:count]), len(number))
        for order in orders
        for count in range(len(order) + 1)
    ]
    gates = torch.ones(len(number), len(game), dtype=torch.double)
    for players, row in number.items():
        gates[row, list(players)] = 0
    values = game.values(gates, progress=progress).numpy()[index]
    return values.reshape(len(orders), -1, values.shape[-1])


def _at(curve: PruningCurve, k: int) -> int:
    if not 0 <= k < len(curve.counts):
        raise OptionError(
            f"k={k}; give 0 to {len(curve.counts) - 1}, the numbers of heads that were ablated"
        )
    return k


def safety_curves_summary(found: ResultRows) -> str:
    """Return the value of both tasks at each number of heads, with the band of random heads."""
    lines = []
    for curve in (found.safety, found.harmless):
        band = curve.band()
        steps = ", ".join(
            f"{count}: {value:.3g} [{low:.3g}, {high:.3g}]"
            for count, value, (low, high) in zip(curve.counts, curve.value, band, strict=True)
        )
        lines.append(f"{curve.made['task']} ({curve.unit}), heads ablated: value [random] {steps}")
    return "\n".join(lines)


def safety_curves_figure(found: ResultRows) -> go.Figure:
    """Draw both curves side by side, each with its interval and its band of random heads."""
    from plotly.subplots import make_subplots

    from interp.draw.page import text

    both = (found.safety, found.harmless)
    titles = [text(f"{c.made['task']} ({c.unit})") for c in both]
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles)
    for column, curve in enumerate(both, start=1):
        traces: Any = curve.plot().data
        for trace in traces:
            trace.showlegend = bool(trace.showlegend is not False and column == 1)
            figure.add_trace(trace, row=1, col=column)
        where: Any = {"row": 1, "col": column}
        line = {"color": "#000000", "dash": "dot", "width": 1}
        figure.add_hline(y=curve.clean, line=line, **where)
        figure.update_xaxes(title_text="heads ablated", row=1, col=column)
    heads = ", ".join(found.removed)
    figure.update_layout(
        template="plotly_white",
        title=text(f"Heads ablated in order: {heads}"),
        height=480,
        legend={"orientation": "h", "y": -0.2},
    )
    return figure


present(
    "SafetyCurves",
    summary=safety_curves_summary,
    plot=safety_curves_figure,
    bounds=bounds_of_curves,
    holds=("interp.causal.pruning.result:PruningCurve",),
)
