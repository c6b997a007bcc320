"""Values of metrics on pieces of the prompts, as a run reads them in place of forward passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from interp.heads.declaration import BoundAnalysis
from interp.model.calls.sites import Site
from interp.model.random_weights import DrawnElsewhere, RandomWeights

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


def without_draws(
    asked: Mapping[str, Mapping[str, Any]], random: RandomWeights, bounds: Sequence[BoundAnalysis]
) -> list[BoundAnalysis]:
    """Return the metrics whose scores on random weights are not kept from earlier."""
    unknown = random.unknown(asked)
    return [b for b in bounds if b.label in unknown]


def drawn_elsewhere(
    short: Sequence[BoundAnalysis], pieces: Pieces, random: RandomWeights, model: Model
) -> RandomWeights:
    """Return draws that are not made where pieces hold all scores of some metrics on them."""
    passes = map(random.pass_name, range(len(random)))
    if any(pieces.whole(what, short, model) is None for what in passes):
        return random
    return DrawnElsewhere(random.model, random.seed, random.draws, random.kept)
