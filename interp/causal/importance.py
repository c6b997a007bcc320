"""Importance of each player: a table of heads, with the values per prompt.

All methods and measures share one sign: a positive score means that the task is better with the
player than without it. So a loss that rises without a head and an accuracy that falls are both
positive, as is the Shapley value of a head that lowers the loss. Magnitudes have no sign.

Dependent prompts (with a common period or template) carry cluster labels. Standard errors and
degrees of freedom are then over clusters.
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
from interp.core.intervals import ErrorPart, MeanIntervals, around, mean_intervals
from interp.core.order import HELPS, SIGN, sign_of
from interp.core.presenter import present
from interp.core.result import Result
from interp.core.standard_errors import standard_error
from interp.core.statistics import DRAWS, bootstrap_interval
from interp.core.table import HeadTable
from interp.core.ties import ordered
from interp.model.calls.sites import Site, Where
from interp.model.content import model_provenance

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.causal.game.game import Game

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Importance(Result):
    """Scores of all players by one method.

    Its rows are players; if each is one head they also have `stack`, `layer` and `head`. Its
    intervals are over clusters of prompts, chosen by the kind of values; see `bounds`.

    Args:
        table: one row per head; heads of one group or layer share their player's score.
        players: labels, in the order of `per_prompt`.
        per_prompt: the score of each player on each prompt, positive if the task is better with the
            player.
        of: "removal" if the score is the effect of ablating the player; "presence" if it is the
            player's contribution.
        higher_is_better: direction of the task.
        magnitude: the score has no sign, so it gives the size of an effect but not its direction.
        notes: additional diagnostics, such as a completeness residual.
        clusters: a label per prompt if prompts are dependent (a common period or template);
            standard errors are over clusters. None if every prompt is its own cluster.
        sampling_sem: standard error of each score over samples of coalitions, where there are any;
            intervals and the table's `sem` include it.
        evaluations: number of coalitions that were evaluated, where they were sampled.
        sampling_df: degrees of freedom of `sampling_sem`.
    """

    table: HeadTable
    players: Players
    per_prompt: Float[Array, "player prompt"] = field(repr=False)
    of: Literal["removal", "presence"]
    higher_is_better: bool
    notes: Mapping[str, Any] = field(default_factory=dict)
    magnitude: bool = False
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    sampling_sem: Float[Array, " player"] | None = field(default=None, repr=False)
    evaluations: int = 0
    sampling_df: float = math.inf
    _units = ("player",)
    _per_row = ("per_prompt", "sampling_sem")
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
        """Number of clusters of the prompts; without labels the number of prompts."""
        return grouped.cluster_count(self.per_prompt.shape[1], self.clusters)

    @property
    def metric(self) -> str:
        """Label of the scores in the table."""
        return next(iter(self.table.metrics), "")

    def helps(self) -> Float[Array, " player"]:
        """Scores to rank by; positive means that the task is better with this player.

        Every score has that sign already, whatever the task and the method.
        """
        return self.score

    def interval(
        self,
        level: float = 0.95,
        *,
        method: Literal["by_kind", "percentile", "bca"] = "by_kind",
        n_boot: int = DRAWS,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Return the rows with `low` and `high` from `bounds`, which documents the arguments.

        Raises:
            OptionError: the level lies outside 0 to 1, or there are fewer than two prompts or
                clusters for a bootstrap.
        """
        if method == "by_kind":
            return self.to_pandas().assign(**self._intervals(level).columns)
        low, high = self.bounds(level, method=method, n_boot=n_boot, seed=seed).T
        return self.to_pandas().assign(low=low, high=high, why_no_interval="")

    def bounds(
        self,
        level: float = 0.95,
        *,
        method: Literal["by_kind", "percentile", "bca"] = "by_kind",
        n_boot: int = DRAWS,
        seed: int = 0,
    ) -> Float[Array, "player 2"]:
        """Return the confidence interval of every score over clusters, `[player, low and high]`.

        "by_kind" is the interval of scores, `interp.core.intervals.mean_intervals`: NaN where the
        prompts are too few, and the column `why_no_interval` says so; its coverage is in
        benchmarks/interval_coverage.md. "percentile" is a bootstrap: clusters are drawn with
        replacement, the same draw for all players; with few clusters it is too narrow. "bca"
        corrects the percentiles for bias and skew (Efron 1987, "Better Bootstrap Confidence
        Intervals").

        Raises:
            OptionError: the level lies outside 0 to 1, or there are fewer than two prompts or
                clusters for a bootstrap.
        """
        if method == "by_kind":
            return self._intervals(level).ends
        return bootstrap_interval(
            self.per_prompt, level, method=method, draws=n_boot, seed=seed, clusters=self.clusters
        )

    def _intervals(self, level: float = 0.95) -> MeanIntervals:
        return mean_intervals(
            self.per_prompt, level, clusters=self.clusters, others=self._other_errors
        )

    @property
    def _other_errors(self) -> Sequence[ErrorPart]:
        """Parts of a score's error beside that over prompts, each with its degrees of freedom."""
        return () if self.sampling_sem is None else ((self.sampling_sem, self.sampling_df),)

    def _rows(self) -> pd.DataFrame:
        """Return one row per player, in order: score, sem, 95 % interval, n, clusters, metric.

        The column `helps` repeats the score: positive if the task is better with the player.
        """
        import pandas as pd

        rows = pd.DataFrame(
            {
                "player": list(self.players.labels),
                "score": self.score,
                "sem": self.sem,
                "helps": self.helps(),
                "n": self.per_prompt.shape[1],
                "clusters": self.n_clusters,
                "metric": self.metric,
            }
        )
        return self._intervals().in_frame(rows)

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
        """Plot the k most helpful players as bars, with 95 % intervals over prompts."""
        return super().plot(k)

    def shown(self) -> pd.DataFrame:
        """Return the rows of `wide`, the most helpful players first."""
        return self.wide().iloc[self.order()].reset_index(drop=True)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Provenance of the scores."""
        return next(iter(self.table.provenance.values()), {})

    def order(self) -> list[int]:
        """Return the players, the most helpful first; ties (up to rounding) stay in order."""
        return ordered(self.helps())

    def top(self, k: int = 5, *, by: str | None = None) -> Self:
        """Return the k most helpful players, or the first k in another order."""
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
        text = "".join(f"; {k}={v}" for k, v in notes.items())
        return f"Importance({self.metric}: {len(self.players)} players, first {best}{text})"


def mean_columns(
    per_prompt: Float[Array, "row prompt"], clusters: Sequence[str] | None = None
) -> dict[str, Float[Array, " row"]]:
    """Return the columns score, sem, low and high of means over prompts, with 95 % t intervals."""
    score, sem = per_prompt.mean(1), standard_error(per_prompt, clusters)
    n = grouped.cluster_count(per_prompt.shape[1], clusters)
    low, high = around(score, [(sem, n - 1.0)]).T
    return {"score": score, "sem": sem, "low": low, "high": high}


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
    sampling: ErrorPart | None = None,
    unit: str | None = None,
    notes: Mapping[str, Any] | None = None,
    magnitude: bool = False,
) -> Importance:
    """Build an `Importance` with its table, for every estimator that evaluates a game."""
    turn = sign_of(of, game.task.higher_is_better, magnitude)
    per_prompt = turn * per_prompt + 0.0  # avoid negative zero
    null = None if null is None else turn * null + 0.0
    if unit is None:
        unit = game.task.unit if magnitude else f"{game.task.unit} {HELPS}"
    values = {"kind": game.kind, "task": game.task.name} | dict(options)
    if game.players.kind != "heads":
        values["players"] = game.players.kind
    label = f"{method}:" + ",".join(f"{k}={v}" for k, v in sorted(values.items()))
    n, clusters = per_prompt.shape[1], game.task.clusters
    sem, others = standard_error(per_prompt, clusters), () if sampling is None else (sampling,)
    for error, _ in others:
        sem = np.hypot(sem, error)
    columns: dict[str, Any] = {"score": per_prompt.mean(1), "sem": sem}
    columns |= mean_intervals(per_prompt, clusters=clusters, others=others).columns
    if null is not None:
        columns |= {"null": null.mean(1), "null_sem": standard_error(null, clusters)}
    records = []
    for site, member in game.players.member.items():
        index = member.numpy()
        heads = np.flatnonzero(index >= 0)
        for h in heads.tolist():
            row = {name: x[index[h]] for name, x in columns.items()}
            records.append(
                {
                    "model": game.model.name,
                    "stack": site.stack,
                    "layer": site.layer,
                    "head": h,
                    "kv_head": site.kv_head(h),
                    "metric": label,
                    "n": n,
                    "clusters": grouped.cluster_count(n, clusters),
                    "unit": unit,
                }
                | row
            )
    provenance = model_provenance(game.model) | game.about()
    provenance |= {
        "options": values,
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


present(Importance, text="interp.report.printed.importance:importance_text", merged="table")
