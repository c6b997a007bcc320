"""Scores of the tokens of one text by several methods, beside the effect of removing each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from interp.attribution.evaluation.removal import one_by_one, values_without
from interp.attribution.example import Example
from interp.core.errors import InterpError


def token_table(
    model: Any, text: str, target: Any, methods: Any, how: str, batch_size: int
) -> pd.DataFrame:
    """Return one row per token: position, token, special, a column per method, and the effect."""
    example = Example(model, text, target)
    frame = pd.DataFrame(
        {"position": range(len(example)), "token": example.tokens, "special": example.special}
    )
    for method in methods:
        try:
            frame[method.label] = method.of(example).scores
        except InterpError:  # named with the failures of the judged texts
            frame[method.label] = math.nan
    where = np.flatnonzero(~example.special)
    gone = one_by_one(where.tolist(), len(example))
    effect = np.full(len(example), math.nan)
    effect[where] = example.value - values_without(example, gone, how, batch_size)
    return frame.assign(effect=effect)
