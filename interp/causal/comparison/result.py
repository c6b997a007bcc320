"""Agreement of rankings of the same players: correlations and overlaps of every pair."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.causal.comparison.draws import agreement_interval
from interp.causal.comparison.questions import question_of
from interp.causal.comparison.ranking import Ranking, first_names
from interp.causal.game.players import Players
from interp.core.csv_rows import csv_text
from interp.core.errors import OptionError
from interp.core.files import write_atomically
from interp.core.json_document import stored_document
from interp.core.presenter import drawn, present
from interp.core.rank_statistics import kendall, overlap_p, ranks, spearman, top_k, up_to_rounding
from interp.core.result import Result
from interp.model.calls.sites import Site, Where

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Array = np.ndarray
MEASURES = {"spearman": up_to_rounding(spearman), "kendall": up_to_rounding(kendall)}


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """Rankings of the same players and how much they agree.

    `to_pandas` has one row per pair and measure of agreement; `wide` has one row per pair.

    Intervals are the middle 95 % of bootstrap draws of prompts (of whole clusters, where prompts
    share something; NaN for one cluster): methods that saw the same prompts
    are redrawn together, a table without values per prompt stays as it is, and the sampling error
    of estimators is not in them. Redrawing adds noise, so they reach lower than the agreement of
    noise-free scores would.
    """

    rankings: tuple[Ranking, ...]
    spearman: Float[Array, "method method"] = field(repr=False)
    kendall: Float[Array, "method method"] = field(repr=False)
    spearman_interval: Float[Array, "method method 2"] = field(repr=False)
    kendall_interval: Float[Array, "method method 2"] = field(repr=False)
    ks: tuple[int, ...]
    made: Mapping[str, Any] = field(repr=False)
    per_prompt = None
    why_no_per_prompt = "an agreement compares rankings over all prompts together"
    _units = ("a", "b", "metric")
    _holds = (Ranking, Players, Site, Where)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Provenance of the compared rankings."""
        return self.made

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the importances, in the order of the matrices."""
        return tuple(r.name for r in self.rankings)

    @property
    def players(self) -> tuple[str, ...]:
        """Labels of the players."""
        return self.rankings[0].labels

    @property
    def scores(self) -> Float[Array, "method player"]:
        """Effect of each player on the task; see `Importance.helps`."""
        return np.stack([r.helps for r in self.rankings])

    @property
    def constant(self) -> tuple[str, ...]:
        """Importances that give all players one score, so that no correlation is defined."""
        return tuple(r.name for r in self.rankings if np.ptp(r.helps) == 0)

    def overlap(self, a: str, b: str, k: int) -> int:
        """Count the common players among the first k of two importances."""
        first, second = (self.rankings[self.names.index(x)].helps for x in (a, b))
        return len(top_k(first, k) & top_k(second, k))

    def _rows(self) -> pd.DataFrame:
        """Return one row per pair and measure: Spearman, Kendall, and top-k overlap.

        The null of a share is its expectation for random rankings, `p` the probability that these
        reach it.
        """
        import pandas as pd

        rows = []
        for row in self.pairs().to_dict("records"):
            pair = {"a": row["a"], "b": row["b"], "n": len(self.players)}
            for what in ("spearman", "kendall"):
                ends = {"low": row[f"{what}_low"], "high": row[f"{what}_high"]}
                score = {"metric": what, "score": row[what], "null": 0.0, "p": math.nan}
                rows.append(pair | score | ends | {"unit": "correlation"})
            for k in self.ks:
                score = {"metric": f"top{k}", "score": row[f"top{k}"], "p": row[f"top{k}_p"]}
                score |= {"null": row[f"top{k}_chance"], "low": math.nan, "high": math.nan}
                rows.append(pair | score | {"unit": "fraction"})
            for stated in rows[-2 - len(self.ks) :]:
                stated["reason"] = row["reason"]
        return pd.DataFrame(rows)

    def bounds(self, level: float = 0.95) -> Float[Array, "row 2"]:
        """Return the ends of each correlation's interval: the bootstrap of `Comparison`.

        For a level other than 95 % the prompts are drawn again, with the seed of the comparison.
        The ends are NaN for shares of the first k.
        """
        if level == 0.95:
            return self.to_pandas()[["low", "high"]].to_numpy(float)
        if not 0 < level < 1:
            raise OptionError(f"level={level}; a level must lie between 0 and 1")
        seed, n_boot = self.made["seed"], self.made["n_boot"]
        intervals = {
            what: agreement_interval(self.rankings, self.scores, measure, n_boot, seed, level)
            for what, measure in MEASURES.items()
        }
        place = {name: i for i, name in enumerate(self.names)}
        none = np.full(2, math.nan)
        ends = [
            intervals[row["metric"]][place[row["a"]], place[row["b"]]]
            if row["metric"] in intervals
            else none
            for row in self
        ]
        return np.array(ends).reshape(-1, 2)

    def wide(self) -> pd.DataFrame:
        """Return the rows of `pairs`, or those of `to_pandas` that `top` kept."""
        return self.pairs() if self._kept is None else self.to_pandas()

    def pairs(self) -> pd.DataFrame:
        """Return one row per pair: correlations with intervals, and the overlap of the first k.

        For each k, the overlap is the share of the first k that both name; it comes with that share
        for random rankings (k / n), and the probability that these reach it.
        """
        import pandas as pd

        rows = []
        for i, j in combinations(range(len(self.rankings)), 2):
            row: dict[str, Any] = {"a": self.names[i], "b": self.names[j]}
            for what in ("spearman", "kendall"):
                row[what] = getattr(self, what)[i, j]
                row[f"{what}_low"], row[f"{what}_high"] = getattr(self, f"{what}_interval")[i, j]
            names = [x for x in (self.names[i], self.names[j]) if x in self.constant]
            for k in self.ks:
                same = self.overlap(self.names[i], self.names[j], k)
                row[f"top{k}"] = math.nan if names else same / k
                row[f"top{k}_chance"] = k / len(self.players)
                row[f"top{k}_p"] = math.nan if names else overlap_p(same, k, len(self.players))
            row["reason"] = f"{first_names(names)} is constant and ranks no player" if names else ""
            rows.append(row)
        return pd.DataFrame(rows)

    def ranks(self) -> pd.DataFrame:
        """Return one row per player: its score and rank by each (1 = first; ties averaged)."""
        import pandas as pd

        columns: dict[str, Any] = {"player": list(self.players)}
        for r in self.rankings:
            columns[f"{r.name} score"] = r.helps
            columns[f"{r.name} rank"] = ranks(-r.helps)
        return pd.DataFrame(columns)

    def questions(self) -> dict[str, str]:
        """Return the question that each importance answers."""
        return {r.name: question_of(r.about["metric"]) for r in self.rankings}

    def plot(self, *, by: str = "score") -> go.Figure:
        """Plot every pair: scatter plots below the diagonal, correlations above it.

        Args:
            by: "score", or "rank" (1 = first).
        """
        return drawn("plot", self, by=by)

    def save(self, path: str | os.PathLike) -> tuple[Path, ...]:
        """Write one file in the format of its suffix, or all tables and a page into a folder.

        Into a folder (a path without suffix) go `agreement.csv`, `ranks.csv`, `comparison.json` and
        `comparison.html`.

        Raises:
            UnknownName: the suffix is not one of those of `Result.save`.
            StoreError: the file cannot be written.
        """
        if Path(path).suffix and not Path(path).is_dir():
            super().save(path)
            return (Path(path),)
        return self._save_all(Path(path))

    def _save_all(self, folder: Path) -> tuple[Path, ...]:
        from interp.core.json_document import json_document
        from interp.draw.figure import svg

        names = ("agreement.csv", "ranks.csv", "comparison.json", "comparison.html")
        paths = tuple(folder / name for name in names)
        pairs, ranks = self.pairs(), self.ranks()
        for path, frame in zip(paths, (pairs, ranks), strict=False):
            write_atomically(path, csv_text(frame).encode())
        values = {
            "format": "interp Comparison 1",
            "players": self.players,
            "scores": dict(zip(self.names, self.scores, strict=True)),
            "pairs": pairs.to_dict("records"),
            "questions": self.questions(),
            "made": self.made,
        }
        write_atomically(paths[2], json_document(values))
        parts = [
            ("Every pair", svg(self.plot())),
            ("Which question each answers", self._questions()),
            ("Agreement of pairs", pairs),
            ("Scores and ranks", ranks),
        ]
        content = drawn("folder_page", self, stored_document(json_document(values)), parts)
        write_atomically(paths[3], content)
        return paths

    def __repr__(self) -> str:
        lines = [f"Comparison: {len(self.names)} importances of {len(self.players)} players"]
        for row in self.pairs().to_dict("records"):
            if row["reason"]:
                text = row["reason"]
            else:
                low, high = row["spearman_low"], row["spearman_high"]
                within = "" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]"
                k = self.ks[min(2, len(self.ks) - 1)]
                text = f"Spearman {row['spearman']:.2f}{within}, Kendall {row['kendall']:.2f}"
                text += f", top {k}: {row[f'top{k}']:.0%} (chance {row[f'top{k}_chance']:.0%})"
            lines.append(f"  {row['a']} and {row['b']}: {text}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from interp.draw.page import html_table

        return html_table(self.wide()) + html_table(self._questions())

    def _questions(self) -> pd.DataFrame:
        import pandas as pd

        asked = self.questions().items()
        return pd.DataFrame(
            [{"importance": name, "question": q or "not a causal score"} for name, q in asked]
        )


present(
    Comparison,
    plot="interp.report.comparison_plot:scatter_matrix",
    folder_page="interp.report.atlas.single:comparison_page",
    text="interp.report.printed.importance:agreement_text",
)
