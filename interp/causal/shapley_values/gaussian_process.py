"""Gaussian process over coalitions, whose Shapley values have a closed form.

Coalitions are similar if they share players:

    k(S, T) = amplitude · product over players on which S and T differ of rho[player]

with one rho in (0, 1) for each player, found with amplitude and noise by maximum marginal
likelihood (Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", ch. 5). It does
not use layers, so it applies to any depth.

The fit is a weighted sum of products over players, one for each coalition seen, and the Shapley
value of a product is an integral of a polynomial (the multilinear extension, Owen 1972), which
Gauss-Legendre nodes give exactly. The same integral, applied twice, gives the posterior variance of
the value: an error bar without another evaluation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from interp.causal.game.pace import timed

Array = np.ndarray
_FIT = 600  # number of coalitions that the kernel is fitted on; all are used afterwards
_STEPS = 60  # maximum steps of the search for the kernel
_NODES = 128  # enough for the smooth integrands of more than 256 players
_LEAST_NOISE = 1e-6  # share of the variance of the values


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Fitted process; values are scaled by their mean and spread over coalitions."""

    gates: Float[Array, "coalition player"]
    rho: Float[Array, " player"]
    amplitude: float
    noise: float
    centre: Float[Array, " prompt"]
    scale: float  # of the mean over prompts
    weight: Float[Array, "coalition prompt"]
    factor: tuple[Array, bool]

    def predict(
        self, gates: Float[Array, "coalition player"]
    ) -> tuple[Float[Array, "coalition prompt"], Float[Array, " coalition"]]:
        """Predict values per prompt, and the standard deviation of the value over prompts."""
        cross = kernel(gates, self.gates, self.rho, self.amplitude)
        left = self.amplitude - (cross * cho_solve(self.factor, cross.T).T).sum(1)
        return self.centre + cross @ self.weight, self.scale * np.sqrt(left.clip(0) + self.noise)

    def shapley(self) -> tuple[Float[Array, "player prompt"], Float[Array, " player"]]:
        """Return Shapley values of the fit per prompt, and the standard deviation of their mean."""
        cross = self.amplitude * _of_products(self.gates, self.rho)
        prior = self.amplitude * _prior(self.rho)
        left = prior - (cross * cho_solve(self.factor, cross).T.T).sum(0)
        return cross.T @ self.weight, self.scale * np.sqrt(left.clip(0))


def fit_process(
    gates: Float[Array, "coalition player"],
    values: Float[Array, "coalition prompt"],
    like: Surrogate | None = None,
) -> Surrogate:
    """Fit the process to these values, with the kernel of another process or a new one.

    The first two rows are the full and the empty coalition, which fix the sum of the Shapley
    values.
    """
    centre, mean = values.mean(0), values.mean(1)
    spread = float(mean.std())
    scale = spread if spread > 0 else 1.0
    if like is None:
        rho, amplitude, noise = _likeliest(gates[:_FIT], ((mean - mean.mean()) / scale)[:_FIT])
    else:
        rho, amplitude, noise = like.rho, like.amplitude, like.noise
    covariance = kernel(gates, gates, rho, amplitude)
    # the sum of the values depends on the two ends, so they are interpolated exactly
    covariance[np.diag_indices_from(covariance)] += [_LEAST_NOISE] * 2 + [noise] * (len(gates) - 2)
    factor = cho_factor(covariance, lower=True)
    weight = cho_solve(factor, values - centre)
    return Surrogate(gates, rho, amplitude, noise, centre, scale, weight, factor)


def kernel(a: Array, b: Array, rho: Array, amplitude: float) -> Float[Array, "a b"]:
    """Compute the covariance of the coalitions in `a` with those in `b`."""
    cost = -np.log(rho)
    differ = (a * cost) @ (1 - b).T + ((1 - a) * cost) @ b.T
    return amplitude * np.exp(-differ)


def fit_seconds(players: int, coalitions: int) -> float:
    """Estimate the seconds that fitting so many coalitions takes, from one step on random ones."""
    rng = np.random.default_rng(0)
    few = min(coalitions, _FIT)
    gates = (rng.random((few, players)) < rng.random((few, 1))).astype(float)
    one = timed(lambda: _Likelihood(gates, rng.normal(size=few)).loss(_start(players)))
    # a step is a Cholesky decomposition and its gradient; the whole table needs one more
    return one * (_STEPS + (coalitions / few) ** 3)


class _Likelihood:
    """Negative log likelihood of values under a kernel, with its gradient in log parameters."""

    def __init__(self, gates: Array, values: Array) -> None:
        self.gates, self.values = torch.tensor(gates), torch.tensor(values)
        self.eye = torch.eye(len(gates), dtype=torch.double)

    def loss(self, x: Array) -> tuple[float, Array]:
        """Return the loss for the log costs of all players, amplitude and noise."""
        a, y, n = self.gates, self.values, self.gates.shape[1]
        t = torch.tensor(x, requires_grad=True)
        cost, amplitude, noise = t[:n].exp(), t[n].exp(), t[n + 1].exp()
        differ = (a * cost) @ (1 - a).T + ((1 - a) * cost) @ a.T
        covariance = amplitude * (-differ).exp() + (noise + _LEAST_NOISE) * self.eye
        root = torch.linalg.cholesky(covariance)
        fitted = 0.5 * y @ torch.cholesky_solve(y[:, None], root)[:, 0]
        # standard normal around the players' mean for the logarithms, and a wide one for the noise
        alike = 0.5 * ((t[:n] - t[:n].mean()) ** 2).sum() + (t[n + 1] + 6) ** 2 / 18
        total = fitted + root.diagonal().log().sum() + alike
        total.backward()
        assert t.grad is not None
        return float(total.detach()), t.grad.numpy()


def _start(n: int) -> Array:
    return np.concatenate([np.full(n, -math.log(n)), [0.0, -6.0]])


def _likeliest(gates: Array, values: Array) -> tuple[Array, float, float]:
    """Fit rho, amplitude and noise; the prior treats all players alike."""
    n = gates.shape[1]
    loss = _Likelihood(gates, values).loss
    limits = [(-12.0, 2.0)] * n + [(-4.0, 6.0), (-12.0, 0.0)]
    options = {"maxiter": _STEPS}
    parameters = minimize(
        loss, _start(n), jac=True, method="L-BFGS-B", bounds=limits, options=options
    ).x
    rho = np.exp(-np.exp(parameters[:n]))
    return rho, float(np.exp(parameters[n])), float(np.exp(parameters[n + 1])) + _LEAST_NOISE


def _nodes(n: int) -> tuple[Array, Array]:
    """Return nodes in (0, 1) and weights, exact for polynomials of degree n - 1."""
    x, w = np.polynomial.legendre.leggauss(min(_NODES, n // 2 + 1))
    return (x + 1) / 2, w / 2


def _of_products(gates: Array, rho: Array) -> Float[Array, "coalition player"]:
    """Return Shapley values of S -> product, over players where S and a coalition differ, of rho.

    If every other player is a member with probability p, the mean of a factor is `inside` if the
    coalition has the player and `outside` otherwise.
    """
    p, w = _nodes(len(rho))
    inside, outside = p + (1 - p) * rho[:, None], p * rho[:, None] + 1 - p  # [player, node]
    product = w * np.exp(gates @ np.log(inside) + (1 - gates) @ np.log(outside))
    gain = 1 - rho
    return gain * (gates * (product @ (1 / inside).T) - (1 - gates) * (product @ (1 / outside).T))


def _prior(rho: Array) -> Float[Array, " player"]:
    """Return the prior variance of each Shapley value, for amplitude 1."""
    p, w = _nodes(len(rho))
    differ = p[:, None] * (1 - p) + (1 - p)[:, None] * p
    total = sum(np.log1p(-(1 - r) * differ) for r in rho)
    product = np.outer(w, w) * np.exp(total)
    return np.array([2 * (1 - r) * (product / (1 - (1 - r) * differ)).sum() for r in rho])
