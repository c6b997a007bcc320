"""Faithfulness of attribution methods: measures per text, means, and tests of differences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Float

from interp.attribution.evaluation.deceived import Deceived, warning
from interp.attribution.evaluation.paired import (
    Difference,
    Limit,
    limit,
    method_differences,
    p_against,
)
from interp.attribution.result import LARGEST_SHARE
from interp.core.clusters import cluster_count, cluster_summary
from interp.core.csv_rows import csv_text
from interp.core.errors import UnknownName
from interp.core.files import write_atomically, write_page
from interp.core.json_document import json_document
from interp.core.long_rows import first_rows
from interp.core.presenter import drawn, present
from interp.core.result import Result
from interp.core.result_rows import ResultRows

if TYPE_CHECKING:
    import os

    import pandas as pd
    import plotly.graph_objects as go

# name -> description, and True if higher is better
MEASURES = {
    "spearman": ("rank correlation of |score| with |change| under occlusion", True),
    "spearman_signed": ("rank correlation of score with change under occlusion", True),
    "aopc": ("fall of the target, top 10 to 50 % by |score| removed", True),
    "aopc_signed": ("fall of the target, top 10 to 50 % by score removed", True),
    "comprehensiveness": ("fall of the target, top 1 to 50 % by |score| removed", True),
    "comprehensiveness_signed": (
        "fall of the target, top 1 to 50 % by score removed, as in ERASER",
        True,
    ),
    "sufficiency": ("fall of the target, only top 1 to 50 % by |score| kept", False),
    "sufficiency_signed": (
        "fall of the target, only top 1 to 50 % by score kept, as in ERASER",
        False,
    ),
    "soft_comprehensiveness": (
        "fall of the target, top by |score| thinned out, matched retention",
        True,
    ),
    "soft_sufficiency": (
        "fall of the target, rest by |score| thinned out, matched retention",
        False,
    ),
}
CORRELATIONS = ("spearman", "spearman_signed")
NULL = "random_scores"  # method whose mean is the null of each measure


@dataclass(frozen=True, eq=False, repr=False)
class Faithfulness(Result):
    """Faithfulness of every method by every measure, over the same texts.

    There is one row per measure and method: the mean over texts, with the mean of `random_scores`
    as its null. Within a measure the best method comes first, and `top(k)` keeps the k best of
    each measure. `texts_to_pandas` has one row per method and text.

    Args:
        rows: one mapping per method and text: the `MEASURES`, the number of tokens, the
            completeness residual, its share of the total, the flag of incomplete scores, and the
            error message if the method gave no scores on the text.
        texts: the texts, in order.
        needs: for each method what it needs: nothing, patterns, forward (passes) or gradients.
        warned: ranks on `bundled:deceive`; see `interp.attribution.evaluation.deceived`.
        provenance: the model, texts, targets, settings and versions.
        clusters: a label per text where texts are not independent; errors are then over clusters,
            and tests flip whole clusters.
    """

    rows: tuple[Mapping[str, Any], ...] = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)
    needs: Mapping[str, str]
    warned: tuple[Deceived, ...] = field(default=(), repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    _units = ("method",)
    _holds = (Deceived,)

    @property
    def per_prompt(self) -> Float[np.ndarray, "row text"]:  # type: ignore[override]
        """Value of each row on each text, `[row, text]`; NaN where there is none."""
        values = {measure: self.values(measure) for measure in MEASURES}
        named = self.wide()[["metric", "method"]].itertuples(index=False, name=None)
        rows = [values[measure][method] for measure, method in named]
        return np.stack(rows) if rows else np.empty((0, len(self.texts)))

    @property
    def methods(self) -> list[str]:
        """Labels of the methods, in the order in which they were requested."""
        return list(self.needs)

    @property
    def measures(self) -> Mapping[str, tuple[str, bool]]:
        """Name of each measure, its description, and True if higher is better."""
        return MEASURES

    @property
    def failures(self) -> list[tuple[str, int, str]]:
        """Method, index of the text (from 0) and error message of each failed attribution."""
        return [(r["method"], r["text"], r["error"]) for r in self.rows if r["error"]]

    @property
    def incomplete(self) -> dict[str, int]:
        """Number of texts per method on which the residual exceeds `LARGEST_SHARE` of the total."""
        counts = dict.fromkeys(self.methods, 0)
        for row in self.rows:
            counts[row["method"]] += bool(row.get("incomplete"))
        return {m: n for m, n in counts.items() if n}

    @property
    def incomplete_warning(self) -> str:
        """Warning about methods with incomplete scores as a sentence; empty if there are none."""
        if not self.incomplete:
            return ""
        text = ", ".join(f"{m} on {n} of {len(self.texts)}" for m, n in self.incomplete.items())
        return f"Scores miss their total by more than {LARGEST_SHARE:.0%} of it: {text} texts."

    @property
    def warning(self) -> str:
        """Warning about methods that `bundled:deceive` misleads; empty if there are none."""
        return warning(self.warned)

    def values(self, measure: str) -> dict[str, np.ndarray]:
        """Return one measure as an array `[text]` per method, NaN where there is no value.

        Raises:
            UnknownName: there is no such measure.
        """
        if measure not in MEASURES:
            raise UnknownName("measure of faithfulness", measure, MEASURES)
        by_method = {m: np.full(len(self.texts), np.nan) for m in self.methods}
        for row in self.rows:
            if row.get(measure) is not None:
                by_method[row["method"]][row["text"]] = row[measure]
        return by_method

    def summary(self, measure: str = "spearman") -> list[tuple[str, float, float, int]]:
        """Return method, mean, standard error over texts and number of texts, the best first."""
        best_first = []
        for method, values in self.values(measure).items():
            one = cluster_summary(values[:, None], self.clusters)
            best_first.append((method, float(one.score[0]), float(one.sem[0]), one.n))
        sign = -1 if MEASURES[measure][1] else 1
        return sorted(
            best_first, key=lambda row: (math.isnan(row[1]), sign * row[1] if row[3] else 0)
        )

    def differences(self, measure: str = "spearman", *, seed: int = 0) -> ResultRows:
        """Test every pair of methods by a paired permutation test, Holm-corrected over pairs.

        `compare` tests this result against another one.

        Returns:
            One row per pair of methods with the columns of `Difference`; the score is the mean
            difference over texts, and `per_prompt` has that of each text.
        """
        values = self._measured(measure)
        tests = self._tested(values, seed)
        apart = [values[d.first] - values[d.second] for d in tests]
        per_prompt = np.stack(apart) if apart else np.empty((0, len(self.texts)))
        facts = {"metric": measure, "unit": self._unit(measure), "null": 0.0}
        return ResultRows(
            "MethodDifferences",
            {name: [getattr(d, name) for d in tests] for name in Difference.__dataclass_fields__},
            ("first", "second"),
            self.provenance,
            facts,
            per_prompt,
            by="abs",
            same_as={"score": "difference"},
        )

    def _tested(self, values: Mapping[str, np.ndarray], seed: int) -> list[Difference]:
        if len(values) < 2:
            return []
        return method_differences(values, seed=seed, clusters=self.clusters)

    def _unit(self, measure: str) -> str:
        return "correlation" if measure in CORRELATIONS else str(self.provenance.get("unit", ""))

    def _measured(self, measure: str) -> dict[str, np.ndarray]:
        return {m: x for m, x in self.values(measure).items() if not np.isnan(x).all()}

    def limit(self, measure: str = "spearman", level: float = 0.05) -> Limit:
        """Return the smallest corrected p-value that these numbers of texts and methods allow."""
        return limit(self._measured(measure), level, clusters=self.clusters)

    def against_random(self, measure: str = "spearman", *, seed: int = 0) -> dict[str, float]:
        """Return for each method the p-value of its difference from random scores.

        Paired over texts, with random signs, two-sided, Holm-corrected over the methods. Empty if
        random scores were not measured.

        Raises:
            UnknownName: there is no such measure.
        """
        values = self._measured(measure)
        if NULL not in values:
            return {}
        return p_against(values, NULL, seed=seed, clusters=self.clusters)

    def better_than(self, measure: str = "spearman", level: float = 0.05) -> dict[str, list[str]]:
        """Return for each method the methods that it beats, with corrected p below `level`.

        If `limit(measure).can_show` is False, there are too few texts for any difference to be
        significant, and empty lists are no evidence of equality.
        """
        more = MEASURES[measure][1]
        beaten: dict[str, list[str]] = {m: [] for m in self.methods}
        for d in self._tested(self._measured(measure), 0):
            if d.p_holm < level:
                wins = (d.difference > 0) == more
                beaten[d.first if wins else d.second].append(d.second if wins else d.first)
        return beaten

    def _rows(self) -> pd.DataFrame:
        """One row per measure and method, measures without any value left out."""
        import pandas as pd

        rows = []
        for measure in MEASURES:
            means = self.summary(measure)
            null = next((mean for method, mean, _, _ in means if method == NULL), math.nan)
            for method, mean, sem, n in means if any(n for *_, n in means) else ():
                row = {"metric": measure, "method": method, "score": mean, "sem": sem, "n": n}
                if self.clusters is not None:
                    there = ~np.isnan(self.values(measure)[method])
                    clusters = [c for c, one in zip(self.clusters, there, strict=True) if one]
                    row["clusters"] = cluster_count(len(clusters), clusters)
                rows.append(
                    row | {"null": null, "unit": self._unit(measure), "needs": self.needs[method]}
                )
        columns = ["metric", "method", "score", "sem", "n", "null", "unit", "needs"]
        columns += [] if self.clusters is None else ["clusters"]
        return pd.DataFrame(rows, columns=pd.Index(columns))

    def top(self, k: int = 5, *, by: str | None = None) -> Self:
        """Keep the first k methods of each measure.

        Args:
            k: the number of methods.
            by: as for other results; by default the best first, so that a measure of which less is
                better begins with its lowest score.

        Raises:
            OptionError: k is negative.
            UnknownName: there is no such order.
        """
        frame = self.to_pandas()
        first_rows(frame, k, by or self._by)  # refuses k and the order also without rows
        positions: list[int] = []
        for measure, rows in frame.groupby("metric", sort=False):
            order = by or ("score" if MEASURES[str(measure)][1] else "lowest")
            positions += [int(rows.index[i]) for i in first_rows(rows, k, order)]
        part = self._take(positions)
        object.__setattr__(part, "_asked", len(positions))
        return part

    def texts_to_pandas(self) -> pd.DataFrame:
        """Return one row per method and text, with all measures as columns."""
        import pandas as pd

        columns = [
            "method",
            "text",
            "tokens",
            *MEASURES,
            "residual",
            "residual_share",
            "incomplete",
            "error",
        ]
        return pd.DataFrame([{c: row.get(c) for c in columns} for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Return summary, differences, warnings and provenance as plain lists and numbers."""
        return {
            "summary": {
                m: [
                    {"method": k, "mean": _number(a), "sem": _number(b), "n": n}
                    for k, a, b, n in self.summary(m)
                ]
                for m in MEASURES
            },
            "differences": {
                m: [
                    {k: _number(v) for k, v in asdict(d).items()}
                    for d in self._tested(self._measured(m), 0)
                ]
                for m in MEASURES
            },
            "limits": {
                m: asdict(stated) | {"can_show": stated.can_show, "text": str(stated)}
                for m, stated in ((m, self.limit(m)) for m in MEASURES)
            },
            "incomplete": self.incomplete,
            "incomplete_warning": self.incomplete_warning,
            "failures": [list(f) for f in self.failures],
            "warning": self.warning,
            "deceived": [{k: _number(v) for k, v in asdict(d).items()} for d in self.warned],
            "texts": list(self.texts),
            "provenance": dict(self.provenance),
        }

    def plot(self, k: int = 20, *, measure: str | None = None) -> go.Figure:
        """Draw bars of the k best methods by one measure, with their standard errors.

        Args:
            k: the number of methods.
            measure: a name of `measures`; by default the measure of the first row.

        Raises:
            UnknownName: there is no such measure among the rows.
        """
        shown = self.wide()["metric"]
        return drawn("plot", self[measure or shown.iloc[0]].top(k))

    def save_html(
        self, path: str | os.PathLike, *, title: str | None = None, command: str | None = None
    ) -> None:
        """Write a self-contained page with tables of all measures and the warnings.

        Args:
            path: the file to write.
            title: heading of the page.
            command: command line to display on the page.

        Raises:
            StoreError: the file cannot be written; an existing file is then unchanged.
            OptionError: the name is that of another format.
        """
        named = {} if title is None else {"title": title}
        page = drawn("page", self, command=command, **named)
        write_page(path, page.encode())

    def save_folder(self, folder: str | Path, *, command: str | None = None) -> list[Path]:
        """Write the rows per text as CSV, summary and tests as JSON, and a page.

        Args:
            folder: where to write faithfulness.csv, faithfulness.json and faithfulness.html.
            command: command line to display on the page.

        Returns:
            The paths of the three files.

        Raises:
            StoreError: a file cannot be written; an existing file is then unchanged.
        """
        folder = Path(folder)
        contents = {
            "faithfulness.csv": csv_text(self.texts_to_pandas()),
            "faithfulness.json": json_document(self.to_dict(), 1, str).decode(),
            "faithfulness.html": drawn("page", self, command=command),
        }
        for name, content in contents.items():
            write_atomically(folder / name, content.encode())
        return [folder / name for name in contents]


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


present(
    Faithfulness,
    plot="interp.report.faithfulness:method_bars",
    page="interp.report.faithfulness:faithfulness_page",
    text="interp.report.printed.attribution:faithfulness_text",
)
