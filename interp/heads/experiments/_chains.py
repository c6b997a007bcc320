"""Interleaved Markov chains: x_t depends on x_{t-k}, with one lag k per sequence, to be found out.

With lag k the sequence is k chains of one law, taken in turn. Whoever knows the law P must infer
the lag from the sequence: the likelihood of lag k is the product of P[x_{t-k}, x_t].
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError


def transition(states: int, rng: np.random.Generator) -> Float[np.ndarray, "state state"]:
    """A random law: every row from a flat Dirichlet distribution.

    Raises:
        OptionError: fewer than two states.
    """
    if states < 2:
        raise OptionError(f"states={states}: at least 2")
    return rng.dirichlet(np.ones(states), states)


def stationary(law: Float[np.ndarray, "state state"]) -> Float[np.ndarray, " state"]:
    """The distribution that the law leaves as it is."""
    n = len(law)
    equations = np.vstack([law.T - np.eye(n), np.ones(n)])
    found = np.linalg.lstsq(equations, np.append(np.zeros(n), 1), rcond=None)[0]
    return np.clip(found, 0, None) / np.clip(found, 0, None).sum()


def interleaved(
    law: Float[np.ndarray, "state state"],
    lag: int,
    length: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, " pos"]:
    """One sequence of states: the first `lag` from the stationary law, then x_t from x_{t-lag}.

    Raises:
        OptionError: a lag outside 1 to length - 1.
    """
    if not 1 <= lag < length:
        raise OptionError(f"lag {lag} in a sequence of {length}: from 1 to {length - 1}")
    states = np.empty(length, dtype=np.int64)
    states[:lag] = rng.choice(len(law), lag, p=stationary(law))
    for t in range(lag, length):
        states[t] = rng.choice(len(law), p=law[states[t - lag]])
    return states


def likelihoods(
    law: Float[np.ndarray, "state state"], states: Int[np.ndarray, " pos"], lags: int
) -> Float[np.ndarray, "pos lag"]:
    """P[x_{t-k}, x_t] for k from 1 to `lags`, from the first t at which every lag has a source."""
    t = np.arange(lags, len(states))
    return np.stack([law[states[t - k], states[t]] for k in range(1, lags + 1)], 1)


def likeliest_lag(
    law: Float[np.ndarray, "state state"], states: Int[np.ndarray, " pos"], lags: int
) -> int:
    """The lag of maximum likelihood."""
    with np.errstate(divide="ignore"):
        return 1 + int(np.log(likelihoods(law, states, lags)).sum(0).argmax())


def normalised_lag(
    law: Float[np.ndarray, "state state"], states: Int[np.ndarray, " pos"], lags: int
) -> int:
    """The lag with the most of each step's likelihood, shared out: what attention can add up."""
    each = likelihoods(law, states, lags)
    return 1 + int((each / each.sum(1, keepdims=True)).sum(0).argmax())
