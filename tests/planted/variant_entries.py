"""Entries of the maps of variants, one number at a time, and their comparison with a rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planted.test_variant_formulas import HEADS, LENGTH, WIDTH
from scipy.special import softmax

Entry = Callable[[Any, Any, int, int, int], float]
D = HEADS * WIDTH


def x_of(state: Any) -> np.ndarray:
    return state.x.numpy()[0]


def split(rule: Any, part: str, x: np.ndarray) -> np.ndarray:
    """Features of the heads, [token, head, d]."""
    return (x @ getattr(rule, part).weight.detach().numpy().T).reshape(len(x), HEADS, -1)


def product(state: Any, h: int, i: int, j: int) -> float:
    return float(state.q[0, h, i] @ state.k[0, h, j]) / math.sqrt(WIDTH)


def attended(scores: list[float], j: int) -> float:
    return float(softmax(np.array(scores))[j])


def causal_softmax(q: np.ndarray, k: np.ndarray, h: int, i: int, j: int) -> float:
    return attended([q[i, h] @ k[m, h] / math.sqrt(q.shape[-1]) for m in range(i + 1)], j)


# --- projections: queries and keys made a second time, then a softmax ---


def plain(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    return attended([product(state, h, i, m) for m in range(i + 1)], j)


def compare(rule: Any, state: Any, entry: Entry) -> None:
    found = rule.rows(state, state.every).numpy()[0]
    for i in (0, 1, 6, LENGTH - 1):
        for j in range(i + 1 if rule.causal else LENGTH):
            for h in range(len(found)):
                wanted = float(entry(rule, state, h, i, j))
                assert found[h, i, j] == pytest.approx(wanted, abs=1e-9), (h, i, j)
