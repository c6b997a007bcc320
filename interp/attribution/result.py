"""A score per input token, with what it explains and how it was made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from interp.core.display import Displayed
from interp.core.doors import behind
from interp.core.files import write_atomically

if TYPE_CHECKING:
    import os

    import pandas as pd
    import plotly.graph_objects as go

    from interp.attribution.example import Example

Array = np.ndarray
# Share of the total that scores may miss before they are flagged: at a tenth the sum is still the
# number explained to its leading digit.
LARGEST_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Attribution(Displayed):
    """Scores of the source tokens for one target, by one method.

    Args:
        method: label, with the options that are not the default.
        target: name of the number explained, `value` that number, `unit` of the scores.
        matrix: one row per output position, where the method has them.
        total: what the scores should sum to; None where the method promises no completeness.
        special: tokens that the tokenizer added.
    """

    method: str
    target: str
    value: float
    unit: str
    signed: bool
    tokens: tuple[str, ...]
    outputs: tuple[str, ...]
    scores: Float[Array, " source"]
    special: Bool[Array, " source"] = field(repr=False)
    matrix: Float[Array, "output source"] | None = field(default=None, repr=False)
    total: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        method: Any,
        example: Example,
        label: str,
        options: Mapping[str, Any],
        found: Any,
        scores: Float[Array, " source"],
    ) -> Attribution:
        """The result of a declared method.

        Args:
            method: an `interp.attribution.declaration.AttributionMethod`.
            found: the `Scores` that its function returned.
        """
        from interp.model.content import model_provenance

        about = model_provenance(example.model) | dict(example.about())
        about |= {"method": method.name, "options": dict(options), "made_by": "interp.attribution"}
        return cls(
            label,
            example.target.name,
            example.value,
            example.target.unit if method.unit == "target" else method.unit,
            method.signed,
            example.tokens,
            example.output_tokens,
            scores,
            example.special,
            None if found.matrix is None else np.asarray(found.matrix, dtype=np.float64),
            found.total,
            dict(found.notes),
            about,
        )

    @property
    def residual(self) -> float | None:
        """What the scores miss of the total they promise, in `unit`; None without a promise."""
        return None if self.total is None else float(self.total - self.scores.sum())

    @property
    def residual_share(self) -> float | None:
        """Size of the residual over that of the total; None without a promise or a total of 0."""
        if self.residual is None or not self.total:
            return None
        return abs(self.residual / self.total)

    @property
    def incomplete(self) -> bool:
        """True if the scores miss more than `LARGEST_SHARE` of the total they promise."""
        return self.residual is not None and abs(self.residual) > LARGEST_SHARE * abs(
            self.total or 0.0
        )

    @property
    def warning(self) -> str:
        """The flag of incomplete scores as a sentence; empty for all others."""
        if not self.incomplete:
            return ""
        share = self.residual_share
        much = "" if share is None else f" by {share:.1%} of it"
        return (
            f"Incomplete: the scores miss their total{much}, more than {LARGEST_SHARE:.0%}, so "
            "they are not the parts of the number explained."
        )

    def top(self, k: int = 5) -> list[tuple[int, str, float]]:
        """The k sources of largest absolute score: position, token, score."""
        order = np.argsort(-np.abs(self.scores), kind="stable")[:k]
        return [(int(i), self.tokens[i], float(self.scores[i])) for i in order]

    def to_pandas(self) -> pd.DataFrame:
        """One row per source token."""
        import pandas as pd

        return pd.DataFrame(
            {
                "position": np.arange(len(self.tokens)),
                "token": list(self.tokens),
                "score": self.scores,
                "special": self.special,
                "method": self.method,
                "target": self.target,
                "unit": self.unit,
                "incomplete": self.incomplete,
            }
        )

    def plot(self) -> go.Figure:
        """A bar per source token, in the order of the text."""
        import plotly.graph_objects as go

        from interp.draw.colours import COLOURS
        from interp.draw.page import text

        names = [f"{i} {text(token)}" for i, token in enumerate(self.tokens)]
        colour = [COLOURS[0] if score >= 0 else COLOURS[1] for score in self.scores]
        figure = go.Figure(go.Bar(x=names, y=self.scores, marker_color=colour))
        figure.update_layout(template="plotly_white", title=text(f"{self.method}: {self.target}"))
        figure.update_yaxes(title_text=text(self.unit))
        return figure

    def _repr_html_(self) -> str:
        return behind("Attribution._repr_html_")(self)

    def save_html(self, path: str | os.PathLike, *, title: str | None = None) -> None:
        """Write one page of coloured text, whole or not at all; raises StoreError."""
        write_atomically(
            Path(path),
            behind("Attribution.save_html")([self], title=title or "Attribution").encode(),
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain lists and numbers."""
        return {
            "method": self.method,
            "target": self.target,
            "value": self.value,
            "unit": self.unit,
            "signed": self.signed,
            "tokens": list(self.tokens),
            "scores": self.scores.tolist(),
            "special": self.special.tolist(),
            "outputs": list(self.outputs),
            "matrix": None if self.matrix is None else self.matrix.tolist(),
            "total": self.total,
            "residual": self.residual,
            "residual_share": self.residual_share,
            "incomplete": self.incomplete,
            "warning": self.warning,
            "notes": dict(self.notes),
            "provenance": dict(self.provenance),
        }

    def save_json(self, path: str | Path) -> None:
        """Write everything as JSON, whole or not at all."""
        write_atomically(Path(path), (json.dumps(self.to_dict(), indent=1) + "\n").encode())

    def save_csv(self, path: str | Path) -> None:
        """Write one row per source token, whole or not at all."""
        write_atomically(Path(path), self.to_pandas().to_csv(index=False).encode())

    def __repr__(self) -> str:
        best = ", ".join(f"{t!r} {s:.3g}" for _, t, s in self.top(3))
        left = (
            "" if self.residual is None else f"; residual {self.residual:.2g} of {self.total:.3g}"
        )
        left += "; incomplete" if self.incomplete else ""
        return f"Attribution({self.method} of {self.target} = {self.value:.4g}: {best}{left})"
