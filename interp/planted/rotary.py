"""Constant queries and keys whose rotary score is a chosen function of the offset alone.

With a constant key (1, 0) and a constant query (a_i, -b_i) in rotary pair i, the score at distance
D = query - key is sum_i a_i cos(w_i D) + b_i sin(w_i D). The a and b of least amplitude that give
the wanted shape solve a small linear programme over every distance of the context, which guarantees
the mass on the target.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.optimize import linprog

from interp.core.errors import OptionError

# Largest rotation (radians) of a content pair over the whole context, so content hardly rotates.
SLOW_ANGLE = 0.02


def margin(context: int) -> float:
    """Return the nats between wanted and unwanted keys: all unwanted get less than e^-7 (0.1 %)."""
    return 7.0 + float(np.log(context))


def theta_for(context: int, n_pairs: int, n_slow: int) -> float:
    """Return the rotary base at which the last `n_slow` pairs hardly rotate within `context`."""
    return float((context / SLOW_ANGLE) ** (n_pairs / (n_pairs - n_slow)))


def frequencies(theta: float, n_pairs: int, n_fast: int) -> np.ndarray:
    """Return radians per token of the first `n_fast` of `n_pairs` rotary pairs."""
    return theta ** (-np.arange(n_fast) / n_pairs)


@lru_cache(maxsize=64)
def window_kernel(
    offsets: tuple[int, ...], context: int, theta: float, n_pairs: int, n_fast: int
) -> np.ndarray:
    """Return amplitudes (a, b), [2, n_fast], of a score 0 at `offsets`, below -margin elsewhere.

    Several offsets are within half a nat of each other, so that they share the mass evenly. Raises
    `OptionError` where the rotary frequencies cannot separate the offsets.
    """
    lower = np.full(context, -np.inf)
    upper = np.full(context, -margin(context))
    slack = 0.0 if len(offsets) == 1 else 0.25
    lower[list(offsets)], upper[list(offsets)] = -slack, slack
    return _least_amplitude(lower, upper, frequencies(theta, n_pairs, n_fast))[0]


@lru_cache(maxsize=64)
def elsewhere_kernel(
    context: int, theta: float, n_pairs: int, n_fast: int
) -> tuple[np.ndarray, float, float]:
    """Return amplitudes of a score that is far lower at distance 0 than anywhere else.

    Returns (amplitudes, spread, depth): every distance from 1 on scores within +-spread nats,
    distance 0 below -depth. A band-limited score cannot be flat everywhere else, so the programme
    chooses the spread, and the caller's content score must exceed it.
    """
    beyond = 10.0  # nats by which the current token is below the lowest earlier one
    upper, lower = np.zeros(context), np.zeros(context)
    upper[0], lower[0] = -beyond, -np.inf
    # The spread widens every bound, and lowers the one at distance 0.
    widening = np.ones(context)
    widening[0] = -1.0
    frequency = frequencies(theta, n_pairs, n_fast)
    amplitudes, spread = _least_amplitude(lower, upper, frequency, widening)
    return amplitudes, spread, spread + beyond


def _least_amplitude(
    lower: np.ndarray,
    upper: np.ndarray,
    frequency: np.ndarray,
    widening: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Find amplitudes with lower <= score <= upper, bounds widened by the spread if asked."""
    distance = np.arange(len(lower))[:, None]
    basis = np.concatenate([np.cos(distance * frequency), np.sin(distance * frequency)], 1)
    widening = np.zeros(len(lower)) if widening is None else widening
    rows = np.concatenate([basis, -basis])
    rows = np.concatenate([rows, -rows, -np.concatenate([widening, widening])[:, None]], 1)
    bounds = np.concatenate([upper, -lower])
    wanted = np.isfinite(bounds)
    rows, bounds = rows[wanted], bounds[wanted]
    # Most constraints are inactive: solve with a few and add those that the solution violates.
    active = np.arange(len(rows)) % 16 == 0
    active |= np.concatenate([distance[:, 0] < 64] * 2)[wanted]
    for _ in range(50):
        solved = linprog(
            np.ones(rows.shape[1]),
            A_ub=rows[active],
            b_ub=bounds[active],
            bounds=(0, None),
            method="highs",
        )
        if solved.status != 0:
            break
        excess = rows @ solved.x - bounds
        if excess.max() < 1e-3:
            positive, negative = np.split(solved.x[:-1], 2)
            return (positive - negative).reshape(2, -1), float(solved.x[-1])
        active |= excess >= max(1e-4, np.sort(excess)[-100])
    raise OptionError(
        f"no rotary score of this shape exists for a context of {len(lower)} with "
        f"{len(frequency)} frequencies; take a shorter context or a smaller vocabulary"
    )
