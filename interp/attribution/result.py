"""Attribution scores of input tokens: the result of every attribution method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from interp.core.files import write_page
from interp.core.presenter import drawn, present
from interp.core.result import Result
from interp.core.ties import ranked

if TYPE_CHECKING:
    import os

    import pandas as pd
    import plotly.graph_objects as go

    from interp.attribution.example import Example

Array = np.ndarray
# Largest share of the total that the scores may miss before they are flagged as incomplete: at a
# tenth, the sum still equals the explained number to its leading digit.
LARGEST_SHARE = 0.1
# Share of the total up to which a residual counts as rounding.
ROUNDING = 1e-4


@dataclass(frozen=True, eq=False)
class Attribution(Result):
    """Scores of the source tokens for one target, by one method.

    There is one row per source token. `top(k)` keeps the k rows of largest absolute score; all
    other values, such as `scores`, `matrix` and `residual`, remain those of the whole input.

    Args:
        method: label of the method, with the options that differ from their defaults.
        target: name of the explained number.
        value: the explained number.
        unit: unit of the scores.
        signed: True if a negative score means evidence against the target.
        tokens: source tokens as text.
        outputs: tokens of the output positions, which are the rows of `matrix`.
        scores: one score per source token.
        special: True for tokens that the tokenizer added.
        matrix: one row of scores per output position; None if the method has none.
        total: the number to which the scores should sum; None if the method does not promise
            completeness.
        residual_cause: why the scores may miss the total; see `completeness`.
        notes: further facts about the computation, such as a saturated share.
        provenance: the model, input, target, method and its options, and versions.
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
    residual_cause: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "an attribution explains one prompt"
    _units = ("position", "token")
    _by = "abs"

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
        """Make the result of a declared method.

        Args:
            method: an `interp.attribution.declaration.AttributionMethod`.
            example: the input that was explained.
            label: name of the method with its options.
            options: values of all options.
            found: the `Scores` that the function of the method returned.
            scores: one score per source token, as float64.

        Returns:
            The attribution with its provenance.
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
            found.residual_cause,
            dict(found.notes),
            about,
        )

    @property
    def residual(self) -> float | None:
        """Total minus the sum of the scores, in `unit`; None if no total is promised."""
        return None if self.total is None else float(self.total - self.scores.sum())

    @property
    def residual_share(self) -> float | None:
        """Absolute residual divided by the absolute total; None without a total or if it is 0."""
        if self.residual is None or not self.total:
            return None
        return abs(self.residual / self.total)

    @property
    def incomplete(self) -> bool:
        """True if the residual exceeds `LARGEST_SHARE` of the promised total."""
        return self.residual is not None and abs(self.residual) > LARGEST_SHARE * abs(
            self.total or 0.0
        )

    @property
    def completeness(self) -> str:
        """Sentences that state what the scores sum to and why they miss their total.

        The only statement on completeness: the terminal, pages, files and notebooks print it.
        """
        sum_ = float(self.scores.sum())
        if self.residual is None or self.total is None:
            return (
                f"The scores sum to {sum_:.4g}; this method promises no completeness, so there is "
                "no residual."
            )
        share = self.residual_share
        much = "" if share is None else f" ({share:.1%})"
        sums = f"the scores sum to {sum_:.6g} of {self.total:.6g} {self.unit}"
        if abs(self.residual) <= ROUNDING * abs(self.total):
            return f"Complete: {sums}, up to rounding."
        left = f"{sums}; residual {self.residual:.2g}{much}"
        cause = f" The residual is due to {self.residual_cause}." if self.residual_cause else ""
        if not self.incomplete:
            return f"Nearly complete: {left}.{cause}"
        return (
            f"Incomplete: {left}, more than {LARGEST_SHARE:.0%} of the total, so they are not the "
            f"parts of the number explained.{cause}"
        )

    def largest(self, k: int = 5) -> list[tuple[int, str, float]]:
        """Return position, token and score of the k sources of largest absolute score."""
        rows = self.top(k).wide()
        return [
            (int(position), str(token), float(score))
            for position, token, score in zip(
                rows["position"], rows["token"], rows["score"], strict=True
            )
        ]

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": self.method}

    def _rows(self) -> pd.DataFrame:
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

    def shown(self) -> pd.DataFrame:
        """Position, token, score and special flag, the largest absolute scores first."""
        rows = ranked(self.wide(), "score", absolute=True)
        return rows.filter(["position", "token", "score", "special"])

    def plot(self, k: int | None = None) -> go.Figure:
        """Draw a bar per source token in the order of the text, or only the first k of `top`."""
        import plotly.graph_objects as go

        from interp.draw.colours import COLOURS
        from interp.draw.page import text

        rows = self.wide() if k is None else self.top(k).wide()
        each = list(zip(rows["position"], rows["token"], strict=True))
        names = [f"{position} {text(token)}" for position, token in each]
        colour = [COLOURS[0] if score >= 0 else COLOURS[1] for score in rows["score"]]
        figure = go.Figure(go.Bar(x=names, y=rows["score"].to_numpy(), marker_color=colour))
        figure.update_layout(template="plotly_white", title=text(f"{self.method}: {self.target}"))
        figure.update_yaxes(title_text=text(self.unit))
        return figure

    def _repr_html_(self) -> str:
        from interp.draw.page import html_table

        rows, rest = self._first()
        after = f"<p>{rest}</p>" if rest else ""
        return f"{drawn('inline', self)}{html_table(rows)}{after}"

    def save_html(self, path: str | os.PathLike, *, title: str | None = None) -> None:
        """Write a self-contained page with the coloured text.

        Raises:
            StoreError: the file cannot be written; an existing file is then unchanged.
        """
        write_page(path, drawn("page", self, title=title).encode())

    def to_dict(self) -> dict[str, Any]:
        """Return all values as plain lists and numbers."""
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
            "completeness": self.completeness,
            "notes": dict(self.notes),
            "provenance": dict(self.provenance),
        }

    def __repr__(self) -> str:
        best = ", ".join(f"{t!r} {s:.3g}" for _, t, s in self.largest(3))
        left = (
            "" if self.residual is None else f"; residual {self.residual:.2g} of {self.total:.3g}"
        )
        left += "; incomplete" if self.incomplete else ""
        return f"Attribution({self.method} of {self.target} = {self.value:.4g}: {best}{left})"


present(
    Attribution,
    inline="interp.report.tokens:inline",
    page="interp.report.tokens:page_of",
    text="interp.report.printed.attribution:attribution_text",
)
