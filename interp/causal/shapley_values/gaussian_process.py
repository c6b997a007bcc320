"""A Gaussian process over coalitions, whose Shapley values have a closed form.

Two coalitions resemble each other by the players they share:

    k(S, T) = amplitude · product over players on which S and T differ of rho[player]

with one rho in (0, 1) for each player, found with amplitude and noise by maximum marginal
likelihood (Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", ch. 5). It knows
nothing of layers, so it serves any depth.

The fit is a weighted sum of products over players, one for each coalition seen, and the Shapley
value of a product is an integral of a polynomial (the multilinear extension, Owen 1972), which
Gauss-Legendre nodes give exactly. The same integral, twice, gives the variance of the value that
the process has left: an error bar without another evaluation.
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
_FIT = 600  # coalitions that the kernel is fitted on; all are used afterwards
_STEPS = 60  # of the search for the kernel, at most
_NODES = 128  # enough for the smooth integrands of more than 256 players
_LEAST_NOISE = 1e-6  # of the variance of the values


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A fitted process; values are scaled by their mean and spread over coalitions."""

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
        """Values per prompt, and the standard deviation of the value over prompts."""
        cross = kernel(gates, self.gates, self.rho, self.amplitude)
        left = self.amplitude - (cross * cho_solve(self.factor, cross.T).T).sum(1)
        return self.centre + cross @ self.weight, self.scale * np.sqrt(left.clip(0) + self.noise)

    def shapley(self) -> tuple[Float[Array, "player prompt"], Float[Array, " player"]]:
        """Shapley values of the fit per prompt, and the standard deviation of their mean."""
        cross = self.amplitude * _of_products(self.gates, self.rho)
        prior = self.amplitude * _prior(self.rho)
        left = prior - (cross * cho_solve(self.factor, cross).T.T).sum(0)
        return cross.T @ self.weight, self.scale * np.sqrt(left.clip(0))


def fit_process(
    gates: Float[Array, "coalition player"],
    values: Float[Array, "coalition prompt"],
    like: Surrogate | None = None,
) -> Surrogate:
    """The process given these values; with the kernel of another, or one of its own.

    The first two rows are all and none, which anchor the sum of the Shapley values.
    """
    centre, mean = values.mean(0), values.mean(1)
    spread = float(mean.std())
    scale = spread if spread > 0 else 1.0
    if like is None:
        rho, amplitude, noise = _likeliest(gates[:_FIT], ((mean - mean.mean()) / scale)[:_FIT])
    else:
        rho, amplitude, noise = like.rho, like.amplitude, like.noise
    covariance = kernel(gates, gates, rho, amplitude)
    # the sum of the values rests on the two ends, so they are met as they are
    covariance[np.diag_indices_from(covariance)] += [_LEAST_NOISE] * 2 + [noise] * (len(gates) - 2)
    factor = cho_factor(covariance, lower=True)
    weight = cho_solve(factor, values - centre)
    return Surrogate(gates, rho, amplitude, noise, centre, scale, weight, factor)


def kernel(a: Array, b: Array, rho: Array, amplitude: float) -> Float[Array, "a b"]:
    """Covariance of the coalitions in `a` with those in `b`."""
    cost = -np.log(rho)
    differ = (a * cost) @ (1 - b).T + ((1 - a) * cost) @ b.T
    return amplitude * np.exp(-differ)


def fit_seconds(players: int, coalitions: int) -> float:
    """Seconds that fitting so many coalitions will take, from one step of it on random ones."""
    rng = np.random.default_rng(0)
    few = min(coalitions, _FIT)
    gates = (rng.random((few, players)) < rng.random((few, 1))).astype(float)
    one = timed(lambda: _Likelihood(gates, rng.normal(size=few)).loss(_start(players)))
    # a step is a Cholesky decomposition and its gradient; the whole table needs one of its own
    return one * (_STEPS + (coalitions / few) ** 3)


class _Likelihood:
    """How unlikely values are under a kernel, and the gradient by its numbers' logarithms."""

    def __init__(self, gates: Array, values: Array) -> None:
        self.gates, self.values = torch.tensor(gates), torch.tensor(values)
        self.eye = torch.eye(len(gates), dtype=torch.double)

    def loss(self, x: Array) -> tuple[float, Array]:
        """Of costs of all players, amplitude and noise."""
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
    """rho, amplitude and noise; players are alike until the values say otherwise."""
    n = gates.shape[1]
    loss = _Likelihood(gates, values).loss
    limits = [(-12.0, 2.0)] * n + [(-4.0, 6.0), (-12.0, 0.0)]
    options = {"maxiter": _STEPS}
    found = minimize(loss, _start(n), jac=True, method="L-BFGS-B", bounds=limits, options=options).x
    rho = np.exp(-np.exp(found[:n]))
    return rho, float(np.exp(found[n])), float(np.exp(found[n + 1])) + _LEAST_NOISE


def _nodes(n: int) -> tuple[Array, Array]:
    """Nodes in (0, 1) and weights, exact for polynomials of degree n - 1."""
    x, w = np.polynomial.legendre.leggauss(min(_NODES, n // 2 + 1))
    return (x + 1) / 2, w / 2


def _of_products(gates: Array, rho: Array) -> Float[Array, "coalition player"]:
    """Shapley values of S -> product over players where S and each coalition differ of rho.

    With every other player in with probability p, a factor is on average `inside` where the
    coalition has the player and `outside` where not.
    """
    p, w = _nodes(len(rho))
    inside, outside = p + (1 - p) * rho[:, None], p * rho[:, None] + 1 - p  # [player, node]
    product = w * np.exp(gates @ np.log(inside) + (1 - gates) @ np.log(outside))
    gain = 1 - rho
    return gain * (gates * (product @ (1 / inside).T) - (1 - gates) * (product @ (1 / outside).T))


def _prior(rho: Array) -> Float[Array, " player"]:
    """Variance of each Shapley value before anything is seen, for amplitude 1."""
    p, w = _nodes(len(rho))
    differ = p[:, None] * (1 - p) + (1 - p)[:, None] * p
    total = sum(np.log1p(-(1 - r) * differ) for r in rho)
    product = np.outer(w, w) * np.exp(total)
    return np.array([2 * (1 - r) * (product / (1 - (1 - r) * differ)).sum() for r in rho])
