"""A linear probe: standardised features, logistic regression, calibration in nested folds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.probes.folds import Numbers, fold_numbers

Array = np.ndarray
INNER = 3  # folds of documents inside the training documents, for the calibration


@dataclass(frozen=True, eq=False)
class LinearProbe:
    """Weights of a probe on standardised features, and its calibration."""

    mean: Float[Array, " feature"]
    scale: Float[Array, " feature"]
    weights: Float[Array, " feature"]
    intercept: float
    slope: float = 1.0
    offset: float = 0.0

    def parts(self, x: Float[Array, "item feature"]) -> Float[Array, "item feature"]:
        """Return what each feature adds to the log odds, before calibration."""
        return (x - self.mean) / self.scale * self.weights

    def log_odds(self, x: Float[Array, "item feature"]) -> Float[Array, " item"]:
        """Return the log odds of the second class, before calibration."""
        return self.parts(x).sum(1) + self.intercept

    def probabilities(self, x: Float[Array, "item feature"]) -> Float[Array, " item"]:
        """Return calibrated probabilities of the second class."""
        return logistic(self.slope * self.log_odds(x) + self.offset)


def logistic(x: Float[Array, "*a"]) -> Float[Array, "*a"]:
    """Return 1 / (1 + exp(-x)) without overflow."""
    from scipy.special import expit

    return expit(x)


def fit_linear(x: Float[Array, "item feature"], y: Numbers, strength: float = 1.0) -> LinearProbe:
    """Fit StandardScaler and LogisticRegression; labels of one class give a constant.

    With more features than items the regression runs on the items' principal axes, which has the
    same solution, since the penalty does not change under rotation.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x)
    mean, scale = np.asarray(scaler.mean_), np.asarray(scaler.scale_)
    if len(np.unique(y)) < 2:
        return LinearProbe(mean, scale, np.zeros(x.shape[1]), 0.0)
    z = (x - mean) / scale
    axes = None
    if z.shape[1] > z.shape[0]:
        _, size, right = np.linalg.svd(z, full_matrices=False)
        axes = right[size > 1e-10 * max(size[0], 1e-300)]
        z = z @ axes.T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the iterations are many
        fit = LogisticRegression(C=strength, max_iter=2000, tol=1e-6).fit(z, y)
    weights = fit.coef_[0] if axes is None else fit.coef_[0] @ axes
    return LinearProbe(mean, scale, weights, float(fit.intercept_[0]))


def fit_calibrated(
    x: Float[Array, "item feature"], y: Numbers, documents: Numbers, strength: float, seed: int
) -> LinearProbe:
    """Fit a probe whose log odds are calibrated on documents that were held out inside (Platt)."""
    probe = fit_linear(x, y, strength)
    inside = np.unique(documents, return_inverse=True)[1]
    if inside.max() < 1 or len(np.unique(y)) < 2:
        return probe
    folds = fold_numbers(inside, min(INNER, int(inside.max()) + 1), seed)
    held = np.zeros(len(y))
    for fold in np.unique(folds):
        there = folds != fold
        held[~there] = fit_linear(x[there], y[there], strength).log_odds(x[~there])
    slope, offset = _platt(held, y)
    return LinearProbe(probe.mean, probe.scale, probe.weights, probe.intercept, slope, offset)


def _platt(log_odds: Float[Array, " item"], y: Numbers) -> tuple[float, float]:
    """Return slope and offset of Platt's fit with smoothed targets; the slope is at least 0."""
    from scipy.optimize import minimize

    positive, negative = int(y.sum()), int((1 - y).sum())
    target = np.where(y == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))
    size = max(float(np.abs(log_odds).max()), 1e-12)

    def loss(given: Array) -> tuple[float, Array]:
        z = given[0] * log_odds / size + given[1]
        gap = logistic(z) - target
        value = np.logaddexp(0, z) - target * z
        return float(value.mean()), np.array([(gap * log_odds / size).mean(), gap.mean()])

    start = np.array([0.0, np.log((positive + 1) / (negative + 1))])
    solution = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None), (None, None)])
    return float(solution.x[0] / size), float(solution.x[1])
