"""Keys that some query scores above all others, by rank, trial queries and linear programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor

_ROUNDING = 1e-9  # of the largest distance between keys
TRIALS = 100
MOST = 48  # keys of a prompt that are examined, since each may need a linear program


def unselectable_share(
    k: Float[Tensor, "prompt kv_head key d_head"],
) -> Float[Tensor, "prompt kv_head"]:
    """Return the share of keys that lie in the convex hull of the others."""
    shares = [[float((~selectable(x.cpu().numpy())).mean()) for x in one] for one in k]
    return torch.tensor(shares, dtype=torch.double).reshape(k.shape[:2])


def selectable(keys: Float[np.ndarray, "key d"]) -> Bool[np.ndarray, "key"]:
    """Return which keys some query gives a larger score than every other key.

    Of keys that are equal none is selectable; a single key is.
    """
    number = len(keys)
    if number == 1:
        return np.ones(1, dtype=bool)
    x = keys - keys.mean(0)
    scale = np.abs(x).max()
    if scale == 0:
        return np.zeros(number, dtype=bool)
    x = x / scale
    if np.linalg.matrix_rank(x, tol=1e-6 * number) == number - 1:
        return np.ones(number, dtype=bool)  # affinely independent: corners of a simplex
    confirmed = np.zeros(number, dtype=bool)
    at = np.arange(number)
    query = x.copy()  # corrected by the key that scores above the wanted one, as a perceptron
    for _ in range(TRIALS):
        scores = query @ x.T
        wanted = scores[at, at]
        scores[at, at] = -np.inf
        above = scores.argmax(1)
        confirmed |= wanted - scores[at, above] > _ROUNDING
        query[~confirmed] += (x - x[above])[~confirmed]
    for key in np.flatnonzero(~confirmed):
        confirmed[key] = _by_program(x, int(key))
    return confirmed


def _by_program(x: Float[np.ndarray, "key d"], key: int) -> bool:
    """Maximise the margin r of q (x_key - x_j) >= r |x_key - x_j| over queries in a box."""
    from scipy.optimize import linprog

    apart = np.delete(x, key, 0) - x[key]
    size = np.linalg.norm(apart, axis=1)
    if size.min() <= _ROUNDING:
        return False
    rows = np.hstack([apart / size[:, None], np.ones((len(apart), 1))])
    aim = np.zeros(x.shape[1] + 1)
    aim[-1] = -1
    box = [(-1, 1)] * x.shape[1] + [(0, 1)]
    solution = linprog(aim, A_ub=rows, b_ub=np.zeros(len(apart)), bounds=box, method="highs")
    return bool(solution.status == 0 and -solution.fun > 1e-7)
