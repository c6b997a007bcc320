"""The fitted rows of every head, kept with a profile: what a description predicts on other text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from interp.profiles.explain import Description


@dataclass(frozen=True, eq=False)
class RowModel:
    """Parameters of position and of the rules of every head, means over both parts of the text.

    Args:
        rules: names of the rules.
        position: parameters of the features of positions, heads in the order of the profile.
        parameters: of the rules, on top of position.
        tokens: ids of the tokens of the corpus.
        counts: how often each occurs, by which tokens are rare or frequent.
    """

    rules: tuple[str, ...]
    position: Float[np.ndarray, "head feature"]
    parameters: Float[np.ndarray, "head rule"]
    tokens: Int[np.ndarray, " token"]
    counts: Int[np.ndarray, " token"]


def row_model_of(
    fitted: Sequence[Description],
    heads: Sequence[int],
    rules: Sequence[str],
    corpus: Int[np.ndarray, " token"],
) -> RowModel:
    """Return the mean of the descriptions of both parts."""
    tokens, counts = np.unique(corpus, return_counts=True)
    position, parameters = (
        np.stack([getattr(one, name).numpy()[list(heads)] for one in fitted]).mean(0)
        for name in ("position", "rules")
    )
    return RowModel(
        tuple(rules), position, parameters, tokens.astype(np.int32), counts.astype(np.int32)
    )
