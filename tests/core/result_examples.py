"""One example per result class, by its full name; models are small and made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

import interp
from interp.core.differences import Differences
from interp.core.result import Result

MADE = {
    "model_id": "m",
    "prompts_hash": "p",
    "made_by": "a test",
    "versions": {"interp": interp.__version__},
}


@cache
def model() -> interp.Model:
    return interp.load("planted:bystander")


@cache
def table() -> interp.HeadTable:
    return interp.score(model(), ["induction", "previous_token"], null="none")


def differences() -> Differences:
    rows = tuple({"model": "m", "head": f"h{i}", "metric": "x", "unit": "nats"} for i in range(3))
    values = np.random.default_rng(0).normal(size=(3, 8))
    return Differences(rows, values, None, MADE)


EXAMPLES: dict[str, Callable[[], Result]] = {
    "interp.core.differences.Differences": differences,
    "interp.core.table.HeadTable": table,
}
