"""Values of heads on each prompt, from which the means and errors of a table are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class PromptValues:
    """Values of every head on every prompt, of one metric of one model.

    Args:
        sites: values by stack and layer.
        clusters: a label per prompt where prompts share something.
    """

    sites: Mapping[tuple[str, int], Float[np.ndarray, "prompt head"]]
    clusters: tuple[str, ...] | None = None

    def of_rows(self, frame: pd.DataFrame) -> Float[np.ndarray, "row prompt"] | None:
        """Return the values of the rows of a table, or None where it has no rows."""
        import numpy as np

        rows = zip(frame["stack"], frame["layer"], frame["head"], strict=True)
        found = [self.sites[stack, layer][:, head] for stack, layer, head in rows]
        return np.stack(found) if found else None
