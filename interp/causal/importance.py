"""Importance of each player: a table of heads, and the values per prompt behind it.

One sign for every method and measure: a positive score says that the task goes better with the
player than without it. So a loss that rises without a head, and an accuracy that falls, are both
positive, as is the Shapley value of a head that lowers the loss. Magnitudes have no sign.

Prompts that share something (a period, a template) carry cluster labels. Errors and degrees of
freedom are those of clusters then.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from jaxtyping import Float

from interp.causal.game.players import Players
from interp.core import clusters as grouped
from interp.core.intervals import ErrorPart, around
from interp.core.result import Result
from interp.core.sign import HELPS, SIGN, sign_of
from interp.core.statistics import DRAWS, bootstrap_interval, require_two
from interp.core.table import HeadTable
from interp.model.content import model_provenance
from interp.model.locate.sites import Site, Where

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.causal.game.game import Game

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Importance(Result):
    """Scores of all players by one method.

    Its rows are players; where each is one head they have `stack`, `layer` and `head` too. Its
    intervals are t intervals over clusters of prompts; see `bounds`.

    Args:
        table: one row per head; heads of one group or layer share their player's score.
        players: labels, in the order of `per_prompt`.
        per_prompt: the score of each player on each prompt, positive where the task goes better
            with the player.
        of: "removal": the score is what the task loses when the player is taken out; "presence":
            what the player contributes.
        higher_is_better: of the task.
        magnitude: the score has no sign: it says how much, not which way.
        notes: what to know besides, such as a completeness residual.
        clusters: a label per prompt where prompts share something (a period, a template); errors
            are over clusters. None: every prompt is a cluster.
    """

    table: HeadTable
    players: Players
    per_prompt: Float[Array, "player prompt"] = field(repr=False)
    of: Literal["removal", "presence"]
    higher_is_better: bool
    notes: Mapping[str, Any] = field(default_factory=dict)
    magnitude: bool = False
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    _units = ("player",)
    _per_row = ("per_prompt",)
    _holds = (HeadTable, Players, Site, Where)

    @property
    def score(self) -> Float[Array, " player"]:
        """Mean over prompts."""
        return self.per_prompt.mean(1)

    @property
    def sem(self) -> Float[Array, " player"]:
        """Standard error over clusters of prompts; NaN for one cluster."""
        return standard_error(self.per_prompt, self.clusters)

    @property
    def n_clusters(self) -> int:
        """The number of clusters that the prompts make up; without labels that of prompts."""
        return grouped.cluster_count(self.per_prompt.shape[1], self.clusters)

    @property
    def metric(self) -> str:
        """The label of the scores in the table."""
        return next(iter(self.table.metrics), "")

    def helps(self) -> Float[Array, " player"]:
        """The scores to rank by: positive means that the task goes better with this player.

        Every score has that sign already, whatever the task and the method.
        """
        return self.score

    def interval(
        self,
        level: float = 0.95,
        *,
        method: Literal["t", "percentile", "bca"] = "t",
        n_boot: int = DRAWS,
        seed: int = 0,
    ) -> pd.DataFrame:
        """The rows with `low` and `high` by `bounds`, which says what the arguments mean.

        Raises:
            OptionError: fewer than two prompts or clusters, or a level outside 0 to 1.
        """
        bounds = self.bounds(level, method=method, n_boot=n_boot, seed=seed)
        return self.to_pandas().assign(low=bounds[:, 0], high=bounds[:, 1])

    def bounds(
        self,
        level: float = 0.95,
        *,
        method: Literal["t", "percentile", "bca"] = "t",
        n_boot: int = DRAWS,
        seed: int = 0,
    ) -> Float[Array, "player 2"]:
        """Confidence interval of every score over clusters of prompts, `[player, low and high]`.

        "t" is the mean and its standard error times a t quantile, which is as wide as few prompts
        need (benchmarks/interval_coverage.md). "percentile" is a bootstrap: clusters are drawn with
        replacement, the same draw for all players; of few clusters it is too narrow. "bca" corrects
        its percentiles for bias and skew (Efron 1987, "Better Bootstrap Confidence Intervals").

        Raises:
            OptionError: fewer than two prompts or clusters, or a level outside 0 to 1.
        """
        if method == "t":
            self._require_prompts()
            return around(self.score, self._errors(), level)
        return bootstrap_interval(
            self.per_prompt, level, method=method, draws=n_boot, seed=seed, clusters=self.clusters
        )

    def _errors(self) -> list[ErrorPart]:
        """The parts of the error of a score, each with its degrees of freedom."""
        return [(self._over_prompts, self.n_clusters - 1)]

    @property
    def _over_prompts(self) -> Float[Array, " player"]:
        return standard_error(self.per_prompt, self.clusters)

    def _require_prompts(self) -> None:
        require_two(self.per_prompt.shape[1], self.n_clusters)

    def _rows(self) -> pd.DataFrame:
        """One row per player, in their order: score, sem, 95 % interval, n, clusters, metric.

        The column `helps` repeats the score: positive where the task goes better with the player.
        """
        import pandas as pd

        n = self.per_prompt.shape[1]
        several = self.n_clusters > 1
        low, high = self.bounds().T if several else np.full((2, len(self.score)), math.nan)
        return pd.DataFrame(
            {
                "player": list(self.players.labels),
                "score": self.score,
                "sem": self.sem,
                "low": low,
                "high": high,
                "helps": self.helps(),
                "n": n,
                "clusters": self.n_clusters,
                "metric": self.metric,
            }
        )

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        table = self.table.wide().set_index(["stack", "layer", "head"])
        members = [self.players.heads_of(i) for i in range(len(self.players))]
        null = [
            table["null"].get((of[0][0].stack, of[0][0].layer, of[0][1]), math.nan)
            if of
            else math.nan
            for of in members
        ]
        unit = table["unit"].iloc[0] if len(table) else ""
        rows = rows.assign(null=np.array(null, dtype=float), unit=unit)
        if members and all(len(of) == 1 for of in members):
            sites = [(site.stack, site.layer, h) for ((site, h),) in members]
            for column, values in zip(
                ("stack", "layer", "head"), zip(*sites, strict=True), strict=True
            ):
                rows[column] = values
        return super()._completed(rows)

    def plot(self, k: int = 20) -> go.Figure:
        """Bars of the k players that the task needs most, with 95 % intervals over prompts."""
        return super().plot(k)

    def shown(self) -> pd.DataFrame:
        """The rows of `wide`, the players that the task needs most first."""
        return self.wide().iloc[self.order()].reset_index(drop=True)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """How the scores were made."""
        return next(iter(self.table.provenance.values()), {})

    def order(self) -> list[int]:
        """The players, those the task needs most first; equal ones (to rounding) in their order."""
        helps = self.helps()
        step = 1e-6 * np.abs(helps[np.isfinite(helps)]).max(initial=1e-30)
        return np.argsort(-np.round(helps / step), kind="stable").tolist()

    def top(self, k: int = 5, *, by: str | None = None) -> Self:
        """The k players without whom the task goes worst, or the first in another order."""
        if by is not None or k < 0:
            return super().top(k, by=by)
        part = self._take(self.order()[:k])
        object.__setattr__(part, "_asked", k)
        return part

    def _take(self, rows: Sequence[int]) -> Self:
        heads = [(s.stack, s.layer, h) for i in rows for s, h in self.players.heads_of(i)]
        frame = self.table.wide()
        place = {
            key: at
            for at, key in enumerate(
                zip(frame["stack"], frame["layer"], frame["head"], strict=True)
            )
        }
        table = self.table._take([place[head] for head in heads])
        part = super()._take(rows)
        part = dataclasses.replace(part, players=self.players.subset(rows), table=table)
        object.__setattr__(part, "_asked", self._asked)
        return part

    def __repr__(self) -> str:
        score = self.score
        first = [
            (self.players.labels[i], float(score[i])) for i in self.order()[: self._asked or 3]
        ]
        best = ", ".join(f"{label} {score:.3g}" for label, score in first)
        notes = {k: f"{v:.3g}" if isinstance(v, float) else v for k, v in self.notes.items()}
        told = "".join(f"; {k}={v}" for k, v in notes.items())
        return f"Importance({self.metric}: {len(self.players)} players, first {best}{told})"


def standard_error(
    per_prompt: Float[Array, "player prompt"], clusters: Sequence[str] | None = None
) -> Float[Array, " player"]:
    """Standard error of the mean over prompts; NaN for one prompt or cluster.

    Args:
        clusters: a label per prompt; the error is then the jackknife over clusters.
    """
    n = per_prompt.shape[1]
    if clusters is not None and len(set(clusters)) < n:
        error = np.full(len(per_prompt), math.nan)
        known = ~np.isnan(per_prompt).any(1)  # a player without scores leaves the others theirs
        error[known] = grouped.cluster_summary(per_prompt[known].T, clusters).sem
        return error
    if n < 2:
        return np.full(len(per_prompt), math.nan)
    return per_prompt.std(1, ddof=1) / math.sqrt(n)


def make_importance(
    game: Game,
    per_prompt: Float[Array, "player prompt"],
    *,
    method: str,
    options: Mapping[str, Any],
    of: Literal["removal", "presence"],
    made_by: str,
    null: Float[Array, "player prompt"] | None = None,
    null_kind: str = "none",
    sampling_sem: Float[Array, " player"] | None = None,
    unit: str | None = None,
    notes: Mapping[str, Any] | None = None,
    magnitude: bool = False,
) -> Importance:
    """An `Importance` with its table, for every estimator that plays a game.

    Args:
        per_prompt, null: in the task's own direction: the change of its value when the player is
            taken out ("removal"), or what the player adds to it ("presence"). They are turned here.
        method: first part of the metric's label; task, kind and `options` follow.
        options: what else was chosen; goes into label and provenance.
        null_kind: the kind of game in which `null` holds the same scores with nothing to find.
        sampling_sem: the error over samples, of estimators that sample.
        unit: instead of the task's with the sign's meaning.
    """
    turn = sign_of(of, game.task.higher_is_better, magnitude)
    per_prompt = turn * per_prompt + 0.0  # no zero with a minus
    null = None if null is None else turn * null + 0.0
    if unit is None:
        unit = game.task.unit if magnitude else f"{game.task.unit} {HELPS}"
    told = {"kind": game.kind, "task": game.task.name} | dict(options)
    if game.players.kind != "heads":
        told["players"] = game.players.kind
    label = f"{method}:" + ",".join(f"{k}={v}" for k, v in sorted(told.items()))
    n, clusters = per_prompt.shape[1], game.task.clusters
    sem = standard_error(per_prompt, clusters)
    if sampling_sem is not None:
        sem = np.sqrt(sem**2 + sampling_sem**2)
    columns = {"score": per_prompt.mean(1), "sem": sem}
    if null is not None:
        columns |= {"null": null.mean(1), "null_sem": standard_error(null, clusters)}
    records = []
    for site, member in game.players.member.items():
        index = member.numpy()
        heads = np.flatnonzero(index >= 0)
        for h in heads.tolist():
            row = {name: float(x[index[h]]) for name, x in columns.items()}
            records.append(
                {
                    "model": game.model.name, "stack": site.stack, "layer": site.layer, "head": h,
                    "kv_head": site.kv_head(h), "metric": label, "n": n,
                    "clusters": grouped.cluster_count(n, clusters), "unit": unit,
                }
                | row
            )  # fmt: skip
    provenance = model_provenance(game.model) | game.about()
    provenance |= {
        "options": told,
        "of": of,
        "sign": "none" if magnitude else SIGN,
        "null": null_kind,
        "notes": [*game.notes, *(f"{k}={v}" for k, v in (notes or {}).items())],
        "edits": [],
        "made_by": made_by,
    }
    table = HeadTable.from_records(records, {(game.model.name, label): provenance})
    return Importance(
        table,
        game.players,
        per_prompt,
        of,
        game.task.higher_is_better,
        dict(notes or {}),
        magnitude,
        clusters,
    )
