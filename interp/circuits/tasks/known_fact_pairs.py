"""Facts that the model must have learned, since the prompt does not give them.

In the corrupted prompt, another country is asked for, whose capital is neither of the two answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.circuits.contrast import ContrastTask
from interp.circuits.tasks.fact_pairs import made

if TYPE_CHECKING:
    from interp.model.model import Model


def make(model: Model, n: int, seed: int, templates: Sequence[int]) -> ContrastTask:
    """Make pairs whose right answer is the true capital, and whose wrong one is another."""
    return made(model, "known_fact", n, seed, templates, lambda true, other: (true, other))
