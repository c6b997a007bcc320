"""Result of changes to the tokens of a picture: their effect on the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.causal.importance import standard_error
from interp.core.result import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class ImageTokenEffects(Result):
    """Change of the answer under each change to the tokens of a picture.

    Rows are changes. The null is the same change with random tokens, as many per prompt.

    Args:
        changes: name of each row.
        metric: what was measured.
        unit: its unit.
        per_prompt: the change of the answer, `[row, prompt]`.
        random: the same with random tokens, `[row, prompt]`; NaN where nothing is chosen.
        kept: tokens of the picture that are kept, `[row, prompt]`.
        tokens: tokens of the picture, per prompt.
        chosen: positions of the kept tokens, per row and prompt.
    """

    changes: tuple[str, ...]
    metric: str
    unit: str
    per_prompt: Float[np.ndarray, "row prompt"] = field(repr=False)
    random: Float[np.ndarray, "row prompt"] = field(repr=False)
    kept: Float[np.ndarray, "row prompt"] = field(repr=False)
    tokens: Float[np.ndarray, " prompt"] = field(repr=False)
    chosen: tuple[tuple[tuple[int, ...], ...], ...] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)
    _units = ("change",)
    _per_row = ("changes", "per_prompt", "random", "kept", "chosen")

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": self.metric, "unit": self.unit}

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        sem = standard_error(self.per_prompt)
        return pd.DataFrame([
            {
                "change": change, "score": float(self.per_prompt[i].mean()), "sem": float(sem[i]),
                "n": self.per_prompt.shape[1], "null": float(self.random[i].mean()),
                "kept": float(self.kept[i].mean()), "tokens": float(self.tokens.mean()),
            }
            for i, change in enumerate(self.changes)
        ])  # fmt: skip

    def __repr__(self) -> str:
        lines = [f"ImageTokenEffects: {self.metric} ({self.unit})"]
        for row in self.to_pandas().to_dict("records"):
            ends = "" if np.isnan(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
            null = "" if np.isnan(row["null"]) else f", random tokens {row['null']:.3g}"
            lines.append(
                f"  {row['change']}: {row['score']:.3g}{ends}{null}; {row['kept']:.3g} of "
                f"{row['tokens']:.3g} tokens kept"
            )
        return "\n".join(lines)
