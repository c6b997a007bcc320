"""Put importances side by side: do they rank the same heads first, and beyond chance?

They answer different questions (`interp.causal.comparison.questions`), so a low agreement is a
finding, not a fault.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.causal.comparison.draws import redrawn
from interp.causal.comparison.questions import question_of
from interp.causal.comparison.ranking import Ranking, listed
from interp.causal.importance import Importance
from interp.core.clusters import count
from interp.core.display import Displayed
from interp.core.doors import behind
from interp.core.errors import OptionError
from interp.core.files import write_atomically
from interp.core.statistics import (
    kendall,
    overlap_p,
    percentile_interval,
    ranks,
    spearman,
    top_k,
)
from interp.core.table import HeadTable

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Array = np.ndarray
N_BOOT = 1000


@dataclass(frozen=True, eq=False)
class Comparison(Displayed):
    """Rankings of the same players and how much they agree.

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

    @property
    def names(self) -> tuple[str, ...]:
        """What the importances are called, in the order of the matrices."""
        return tuple(r.name for r in self.rankings)

    @property
    def players(self) -> tuple[str, ...]:
        """Labels of the players."""
        return self.rankings[0].labels

    @property
    def scores(self) -> Float[Array, "method player"]:
        """How much the task needs each player; see `Importance.helps`."""
        return np.stack([r.helps for r in self.rankings])

    @property
    def constant(self) -> tuple[str, ...]:
        """Importances that give all players one score, so that nothing correlates with them."""
        return tuple(r.name for r in self.rankings if np.ptp(r.helps) == 0)

    def overlap(self, a: str, b: str, k: int) -> int:
        """How many of the first k players of two importances are the same."""
        first, second = (self.rankings[self.names.index(x)].helps for x in (a, b))
        return len(top_k(first, k) & top_k(second, k))

    def to_pandas(self) -> pd.DataFrame:
        """One row per pair: correlations with intervals, and for each k the share of the first k
        that both name, that share for random rankings (k / n), and how often these reach it.
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
            row["reason"] = f"{listed(names)} is constant and ranks nobody" if names else ""
            rows.append(row)
        return pd.DataFrame(rows)

    def ranks(self) -> pd.DataFrame:
        """One row per player: its score and its rank (1 = first, ties share the mean) by each."""
        import pandas as pd

        columns: dict[str, Any] = {"player": list(self.players)}
        for r in self.rankings:
            columns[f"{r.name} score"] = r.helps
            columns[f"{r.name} rank"] = ranks(-r.helps)
        return pd.DataFrame(columns)

    def questions(self) -> dict[str, str]:
        """The question that each of the importances answers."""
        return {r.name: question_of(r.about["metric"]) for r in self.rankings}

    def plot(self, *, by: str = "score") -> go.Figure:
        """Scatter plots of every pair below the diagonal, correlations above it.

        Args:
            by: "score", or "rank" (1 = first).
        """
        return behind("Comparison.plot")(self, by=by)

    def save(self, folder: str | os.PathLike) -> tuple[Path, ...]:
        """Write `agreement.csv`, `ranks.csv`, `comparison.json` and `comparison.html`.

        Raises:
            StoreError: the folder or disk refuses.
        """
        from interp.draw.page import page, to_json

        folder = Path(folder)
        names = ("agreement.csv", "ranks.csv", "comparison.json", "comparison.html")
        paths = tuple(folder / name for name in names)
        pairs, ranks = self.to_pandas(), self.ranks()
        for path, frame in zip(paths, (pairs, ranks), strict=False):
            write_atomically(path, frame.to_csv(index=False, lineterminator="\n").encode())
        told = {
            "format": "interp Comparison 1",
            "players": self.players,
            "scores": dict(zip(self.names, self.scores, strict=True)),
            "pairs": pairs.to_dict("records"),
            "questions": self.questions(),
            "made": self.made,
        }
        write_atomically(paths[2], to_json(told))
        parts = [
            ("Which question each answers", self._asked()),
            ("Agreement of pairs", pairs),
            ("Scores and ranks", ranks),
        ]
        title = f"Importances of {self.made['model']}, {len(self.players)} players"
        content = page(title, self.plot(), parts, self.made, file_name="comparison")
        write_atomically(paths[3], content)
        return paths

    def __repr__(self) -> str:
        lines = [f"Comparison: {len(self.names)} importances of {len(self.players)} players"]
        for row in self.to_pandas().to_dict("records"):
            if row["reason"]:
                told = row["reason"]
            else:
                low, high = row["spearman_low"], row["spearman_high"]
                within = "" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]"
                k = self.ks[min(2, len(self.ks) - 1)]
                told = f"Spearman {row['spearman']:.2f}{within}, Kendall {row['kendall']:.2f}"
                told += f", top {k}: {row[f'top{k}']:.0%} (chance {row[f'top{k}_chance']:.0%})"
            lines.append(f"  {row['a']} and {row['b']}: {told}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from interp.draw.page import html_table

        return html_table(self.to_pandas()) + html_table(self._asked())

    def _asked(self) -> pd.DataFrame:
        import pandas as pd

        asked = self.questions().items()
        return pd.DataFrame(
            [{"importance": name, "question": q or "not a causal score"} for name, q in asked]
        )


def compare(
    importances: Mapping[str, Importance | HeadTable] | Sequence[Importance | HeadTable],
    *,
    ks: Sequence[int] | None = None,
    allow_tasks: bool = False,
    n_boot: int = N_BOOT,
    seed: int = 0,
) -> Comparison:
    """Rank correlations and top-k overlaps of importances of the same players.

    Args:
        importances: by the names to show, or a list that is called by its metrics, less the
            options they share. Rankings go by `Importance.helps`: first comes whom the task needs
            most. Magnitudes have no sign, so a head that harms the task ranks high in them and
            last in signed ones.
        ks: lengths of the top lists; 1, 2, 4, ... up to half of the players unless given.
        allow_tasks: compare importances on different tasks (or prompts) all the same.
        n_boot: draws of prompts for the intervals; 0 for none.

    Raises:
        OptionError: fewer than two importances, or those of different models, players or tasks.
    """
    given = (
        list(importances.items())
        if isinstance(importances, Mapping)
        else [(None, x) for x in importances]
    )
    if len(given) < 2:
        raise OptionError(f"{len(given)} importances; a comparison needs at least two")
    rankings = [Ranking.of(x, name) for name, x in given]
    if not isinstance(importances, Mapping):
        names = _short([r.name for r in rankings])
        rankings = [replace(r, name=name) for r, name in zip(rankings, names, strict=True)]
    names = [r.name for r in rankings]
    if len(set(names)) < len(names):
        twice = next(x for x in names if names.count(x) > 1)
        raise OptionError(f"two importances are called {twice}; give a mapping of names to them")
    rankings = [_aligned(rankings[0], r, allow_tasks) for r in rankings]
    chosen = _lengths(ks, len(rankings[0].labels))
    if n_boot < 0:
        raise OptionError(f"n_boot={n_boot}; it is 0 or more")
    scores = np.stack([r.helps for r in rankings])
    measures = {"spearman": spearman, "kendall": kendall}
    intervals = {
        what: _interval(rankings, scores, measure, n_boot, seed)
        for what, measure in measures.items()
    }
    made = {
        "model": rankings[0].about["model"],
        "content_hash": rankings[0].about["content_hash"],
        "importances": {r.name: r.about for r in rankings},
        "n_boot": n_boot,
        "seed": seed,
        "made_by": "interp.causal.compare",
    }
    return Comparison(
        tuple(rankings),
        spearman(scores),
        kendall(scores),
        intervals["spearman"],
        intervals["kendall"],
        chosen,
        made,
    )


def _aligned(first: Ranking, other: Ranking, allow_tasks: bool) -> Ranking:
    """`other` in the order of the players of `first`."""
    pair = f"{first.name} and {other.name}"
    a, b = first.about, other.about
    key = "content_hash" if a["content_hash"] and b["content_hash"] else "model"
    if a[key] != b[key]:
        raise OptionError(
            f"{pair} are of different models ({a['model']}, {b['model']}); compare within one"
        )
    if a["task_hash"] and b["task_hash"] and a["task_hash"] != b["task_hash"] and not allow_tasks:
        what = "tasks" if a["task"] != b["task"] else "prompts of one task"
        raise OptionError(
            f"{pair} are on different {what} ({a['task']}, {b['task']}); allow_tasks=True "
            "compares them all the same"
        )
    only_a = [x for x in first.labels if x not in set(other.labels)]
    only_b = [x for x in other.labels if x not in set(first.labels)]
    if only_a or only_b:
        raise OptionError(
            f"{pair} score different players: {len(first.labels)} and {len(other.labels)} of them, "
            f"{listed(only_a or only_b)} only in {first.name if only_a else other.name}"
        )
    place = {label: i for i, label in enumerate(other.labels)}
    order = [place[label] for label in first.labels]
    per_prompt = None if other.per_prompt is None else other.per_prompt[order]
    helps = other.helps[order]
    return replace(other, labels=first.labels, helps=helps, per_prompt=per_prompt, players=None)


def _short(labels: Sequence[str]) -> list[str]:
    """Metric labels without the options that all of them share."""
    split = [label.partition(":") for label in labels]
    shared = set.intersection(*(set(options.split(",")) for _, _, options in split))
    short = []
    for name, _, options in split:
        own = [x for x in options.split(",") if x and x not in shared]
        short.append(f"{name}:{','.join(own)}" if own else name)
    return short if len(set(short)) == len(set(labels)) else list(labels)


def _lengths(ks: Sequence[int] | None, n: int) -> tuple[int, ...]:
    if ks is None:
        return tuple(2**i for i in range(n) if 2**i <= max(1, n // 2))
    chosen = tuple(dict.fromkeys(int(k) for k in ks))
    wrong = [k for k in chosen if not 1 <= k <= n]
    if wrong or not chosen:
        raise OptionError(f"ks={list(ks)}; lengths of top lists go from 1 to {n} players")
    return chosen


def _interval(
    rankings: Sequence[Ranking], scores: Array, measure: Any, n_boot: int, seed: int
) -> Float[Array, "method method 2"]:
    """Of every pair; NaN where neither kept its prompts or there are too few."""
    m = len(rankings)
    kept = [
        x if x is not None and count(x.shape[1], r.clusters) > 1 else None
        for r in rankings
        for x in [r.per_prompt]
    ]
    found = np.full((m, m, 2), math.nan)
    if n_boot < 2 or all(x is None for x in kept):
        return found
    shared = [
        (r.about["task_hash"], 0 if x is None else x.shape[1])
        for r, x in zip(rankings, kept, strict=True)
    ]
    magnitude = [r.magnitude for r in rankings]
    labels = [r.clusters for r in rankings]
    drawn = redrawn(scores, kept, shared, magnitude, measure, n_boot, seed, labels)
    for i, j in combinations(range(m), 2):
        seen = drawn[:, i, j][np.isfinite(drawn[:, i, j])]
        ranked = min(np.ptp(scores[i]), np.ptp(scores[j])) > 0
        if ranked and (kept[i] is not None or kept[j] is not None) and len(seen):
            found[i, j] = found[j, i] = percentile_interval(seen)
    return found
