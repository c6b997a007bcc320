"""Facts that the prompt gives and that contradict the true ones.

In the corrupted prompt, the given fact is about another country, so that it answers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.circuits.contrast import ContrastTask
from interp.circuits.tasks.fact_pairs import made

if TYPE_CHECKING:
    from interp.model.model import Model


def make(model: Model, n: int, seed: int, templates: Sequence[int]) -> ContrastTask:
    """Make pairs whose right answer is the given capital, and whose wrong one is the true one."""
    return made(model, "given_fact", n, seed, templates, lambda true, given: (given, true))
