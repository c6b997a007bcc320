"""Values of metrics on pieces of the prompts, as a run reads them in place of forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from interp.heads.declaration import BoundAnalysis
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model

SCORING, SHUFFLED = "scoring", "null: shuffled tokens"  # names of passes
PerMetric = dict[str, dict[Site, np.ndarray]]  # label -> attention -> [prompt, head]


class Pieces(Protocol):
    """Values that were computed on pieces of the prompts."""

    def whole(self, what: str, bounds: Sequence[BoundAnalysis], model: Model) -> PerMetric | None:
        """Return the values of a pass on all prompts, or None where pieces are missing."""
        ...

    def masks(self, what: str) -> dict[str, str]:
        """Return the structure of the masks in a pass by name of the attention."""
        ...
