"""Interleaved Markov chains: x_t depends on x_{t-k}, with one unknown lag k per sequence.

With lag k the sequence is k chains with one transition matrix, interleaved. A model that knows the
matrix P must infer the lag from the sequence: the likelihood of lag k is the product of P[x_{t-k},
x_t].
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError


def transition(states: int, rng: np.random.Generator) -> Float[np.ndarray, "state state"]:
    """Draw a random transition matrix, each row from a flat Dirichlet distribution."""
    if states < 2:
        raise OptionError(f"states={states}: a chain needs at least 2 states")
    return rng.dirichlet(np.ones(states), states)


def stationary(law: Float[np.ndarray, "state state"]) -> Float[np.ndarray, " state"]:
    """Return the stationary distribution of a transition matrix."""
    n = len(law)
    equations = np.vstack([law.T - np.eye(n), np.ones(n)])
    solution = np.linalg.lstsq(equations, np.append(np.zeros(n), 1), rcond=None)[0]
    return np.clip(solution, 0, None) / np.clip(solution, 0, None).sum()


def interleaved(
    law: Float[np.ndarray, "state state"],
    lag: int,
    length: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, " pos"]:
    """Draw one sequence: the first `lag` states are stationary, then x_t follows x_{t-lag}."""
    if not 1 <= lag < length:
        raise OptionError(
            f"lag {lag} in a sequence of {length}: the lag must lie between 1 and {length - 1}"
        )
    states = np.empty(length, dtype=np.int64)
    states[:lag] = rng.choice(len(law), lag, p=stationary(law))
    for t in range(lag, length):
        states[t] = rng.choice(len(law), p=law[states[t - lag]])
    return states


def likelihoods(
    law: Float[np.ndarray, "state state"], states: Int[np.ndarray, " pos"], lags: int
) -> Float[np.ndarray, "pos lag"]:
    """Return P[x_{t-k}, x_t] for k from 1 to `lags`, from the first t with all lags."""
    t = np.arange(lags, len(states))
    return np.stack([law[states[t - k], states[t]] for k in range(1, lags + 1)], 1)


def likeliest_lag(
    law: Float[np.ndarray, "state state"], states: Int[np.ndarray, " pos"], lags: int
) -> int:
    """Return the lag of maximum likelihood."""
    with np.errstate(divide="ignore"):
        return 1 + int(np.log(likelihoods(law, states, lags)).sum(0).argmax())
