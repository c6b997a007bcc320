"""What a faithfulness run found: rows, summary, and differences that are more than chance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.attribution.evaluation.deceived import Deceived, warning
from interp.attribution.evaluation.paired import Difference, Limit, limit, method_differences
from interp.attribution.result import LARGEST_SHARE
from interp.core.display import Displayed
from interp.core.doors import behind
from interp.core.errors import UnknownName
from interp.core.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# name -> what it is, and whether more is better
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


@dataclass(frozen=True, eq=False, repr=False)
class Faithfulness(Displayed):
    """Measures of every method on every text.

    Args:
        rows: one per method and text: `MEASURES`, the number of tokens, the completeness
            residual, its share of the total and whether that flags the scores as incomplete, and
            an error where the method has no scores on the text.
        needs: what each method asks of a model.
        warned: ranks on `bundled:deceive`; see `interp.attribution.evaluation.deceived`.
    """

    rows: tuple[Mapping[str, Any], ...] = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)
    needs: Mapping[str, str]
    warned: tuple[Deceived, ...] = field(default=(), repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def methods(self) -> list[str]:
        """Labels, in the order asked for."""
        return list(self.needs)

    @property
    def measures(self) -> Mapping[str, tuple[str, bool]]:
        """Name of each measure, what it is, and whether more is better."""
        return MEASURES

    @property
    def failures(self) -> list[tuple[str, int, str]]:
        """Method, text (counted from 0) and error, where a method gave no scores."""
        return [(r["method"], r["text"], r["error"]) for r in self.rows if r["error"]]

    @property
    def incomplete(self) -> dict[str, int]:
        """Texts on which a method's scores miss more of their total than `LARGEST_SHARE`."""
        found = dict.fromkeys(self.methods, 0)
        for row in self.rows:
            found[row["method"]] += bool(row.get("incomplete"))
        return {m: n for m, n in found.items() if n}

    @property
    def incomplete_warning(self) -> str:
        """The incomplete methods as a sentence; empty if there are none."""
        if not self.incomplete:
            return ""
        told = ", ".join(f"{m} on {n} of {len(self.texts)}" for m, n in self.incomplete.items())
        return f"Scores miss their total by more than {LARGEST_SHARE:.0%} of it: {told} texts."

    @property
    def warning(self) -> str:
        """The standing warning of methods that a model can deceive; empty if none is."""
        return warning(self.warned)

    def values(self, measure: str) -> dict[str, np.ndarray]:
        """One measure as `[text]` per method, NaN where there is none.

        Raises:
            UnknownName: no such measure.
        """
        if measure not in MEASURES:
            raise UnknownName("measure of faithfulness", measure, MEASURES)
        found = {m: np.full(len(self.texts), np.nan) for m in self.methods}
        for row in self.rows:
            if row.get(measure) is not None:
                found[row["method"]][row["text"]] = row[measure]
        return found

    def summary(self, measure: str = "spearman") -> list[tuple[str, float, float, int]]:
        """Method, mean, standard error over texts and their number; the best first."""
        best_first = []
        for method, values in self.values(measure).items():
            x = values[~np.isnan(values)]
            n = len(x)
            mean = float(x.mean()) if n else math.nan
            sem = float(x.std(ddof=1) / n**0.5) if n > 1 else math.nan
            best_first.append((method, mean, sem, n))
        sign = -1 if MEASURES[measure][1] else 1
        return sorted(
            best_first, key=lambda row: (math.isnan(row[1]), sign * row[1] if row[3] else 0)
        )

    def compare(self, measure: str = "spearman", *, seed: int = 0) -> list[Difference]:
        """Every pair of methods in a paired permutation test, Holm-corrected over the pairs."""
        values = self._measured(measure)
        return method_differences(values, seed=seed) if len(values) > 1 else []

    def _measured(self, measure: str) -> dict[str, np.ndarray]:
        return {m: x for m, x in self.values(measure).items() if not np.isnan(x).all()}

    def limit(self, measure: str = "spearman", level: float = 0.05) -> Limit:
        """The smallest corrected p-value that the number of texts and of methods allows."""
        return limit(self._measured(measure), level)

    def better_than(self, measure: str = "spearman", level: float = 0.05) -> dict[str, list[str]]:
        """For each method those that it beats at a corrected level.

        Empty lists say nothing where `limit(measure).can_show` is false: there are too few texts.
        """
        more = MEASURES[measure][1]
        found: dict[str, list[str]] = {m: [] for m in self.methods}
        for d in self.compare(measure):
            if d.p_holm < level:
                wins = (d.difference > 0) == more
                found[d.first if wins else d.second].append(d.second if wins else d.first)
        return found

    def to_pandas(self) -> pd.DataFrame:
        """One row per method and text."""
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
        """Summary, differences, warnings and provenance as plain lists and numbers."""
        return {
            "summary": {
                m: [
                    {"method": k, "mean": _number(a), "sem": _number(b), "n": n}
                    for k, a, b, n in self.summary(m)
                ]
                for m in MEASURES
            },
            "differences": {
                m: [{k: _number(v) for k, v in asdict(d).items()} for d in self.compare(m)]
                for m in MEASURES
            },
            "limits": {
                m: asdict(told) | {"can_show": told.can_show, "text": str(told)}
                for m, told in ((m, self.limit(m)) for m in MEASURES)
            },
            "incomplete": self.incomplete,
            "incomplete_warning": self.incomplete_warning,
            "failures": [list(f) for f in self.failures],
            "warning": self.warning,
            "deceived": [{k: _number(v) for k, v in asdict(d).items()} for d in self.warned],
            "texts": list(self.texts),
            "provenance": dict(self.provenance),
        }

    def plot(self, measure: str = "spearman") -> go.Figure:
        """Bars in order, with one standard error either way."""
        return behind("Faithfulness.plot")(self, measure)

    def save(self, folder: str | Path, *, command: str | None = None) -> list[Path]:
        """Write rows as CSV, summary and tests as JSON, and a page; each whole or not at all."""
        folder = Path(folder)
        made = {
            "faithfulness.csv": self.to_pandas().to_csv(index=False),
            "faithfulness.json": json.dumps(self.to_dict(), indent=1, default=str) + "\n",
            "faithfulness.html": behind("Faithfulness.page")(self, command=command),
        }
        for name, content in made.items():
            write_atomically(folder / name, content.encode())
        return [folder / name for name in made]


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
