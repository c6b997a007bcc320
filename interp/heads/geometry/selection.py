"""Keys that a selection by score would choose or miss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.errors import OptionError
from interp.heads.declaration import measurement

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


@measurement(unit="largest value norm", low=0.0, high=1.0, requires=("self",), end="low")
def selection_distance(layer, *, number: int = 4):
    """Distance between the weighted sums of the values of the top keys and of all other keys.

    In units of the largest norm of a visible value, averaged over queries that see more than twice
    as many keys. 1 is the limit that weights of sum 1 allow; for weights that are spread over T
    keys with unrelated values it falls as 1 / sqrt(T): what is selected is not told apart.

    Not for: comparing prompts of different lengths, or numbers of keys: the share of selected keys
    sets the level.

    Options:
        number: number of selected keys.

    Reference: Mudarisov et al. 2025, "Limitations of Normalization in Attention Mechanism" (arXiv
    2508.17821; there with embeddings, here with the head's values).
    """
    from interp.heads.layer import mean_of_rows

    return mean_of_rows(selection(layer, number)[0], layer.sees > 2 * number)


@measurement(unit="share of keys", low=0.0, high=1.0, requires=("self",))
def selection_share(layer, *, number: int = 4):
    """Share of the top keys whose weighted values lie nearer to their sum than any other's.

    The ball around the sum of the selected weighted values that holds no other weighted value;
    averaged over queries that see more than twice as many keys. The paper finds that it saturates
    at 70 to 85 % in GPT-2.

    Not for: comparing prompts of different lengths, or numbers of keys.

    Options:
        number: number of selected keys.

    Reference: Mudarisov et al. 2025, "Limitations of Normalization in Attention Mechanism" (arXiv
    2508.17821; there with embeddings, here with the head's values).
    """
    from interp.heads.layer import mean_of_rows

    return mean_of_rows(selection(layer, number)[1], layer.sees > 2 * number)


@measurement(unit="share of keys", low=0.0, high=1.0, requires=("qk",), end="high")
def unselectable_keys(layer):
    """Share of a head's keys that no query can give the largest score.

    A key of a prompt is unselectable if it lies in the convex hull of the others. Keys with more
    dimensions than their number minus one are almost always all selectable. Decided by rank where
    that settles it, by trial queries, and otherwise by a linear program (HiGHS).

    Not for: causal limits: the first 48 keys of the prompt compete with each other here, whoever
    sees them, and biases by position count for nothing.

    Reference: Brody et al. 2023, "On the Expressivity Role of LayerNorm in Transformers' Attention"
    (arXiv 2305.02582; there with Gurobi and on hidden states).
    """
    shared = layer.heads // layer.call.k.shape[1]
    shares = unselectable_share(layer.call.k[:, :, :MOST].double())
    return shares.repeat_interleave(shared, 1)


def selection(
    layer: LayerCall, number: int
) -> tuple[Float[Tensor, "prompt head row"], Float[Tensor, "prompt head row"]]:
    """Return per query the distance of selected from other values, and the share that is apart.

    Selected are the keys of largest weight. The distance is that between the weighted sums of the
    selected and of the other values, in units of the largest visible norm; the share is that of
    selected weighted values nearer to their sum than every weighted value that is not selected.
    """
    import torch

    if number < 1:
        raise OptionError(f"number={number} is too small; it must be at least 1")
    distances, shares = [], []
    v, size = layer.v, layer.v.norm(dim=-1)
    for _, pattern, visible in layer.blocks():
        best = pattern.topk(min(number, pattern.shape[-1]), dim=-1).indices
        chosen = torch.zeros_like(pattern, dtype=torch.bool).scatter_(-1, best, True)
        whole = pattern @ v
        of_chosen = (pattern * chosen) @ v
        longest = (size[..., None, :] * visible).amax(-1)
        apart = (whole - 2 * of_chosen).norm(dim=-1)
        distances.append(torch.where(longest > 0, apart / longest.clamp_min(1e-300), torch.nan))
        lengths = (pattern * size[..., None, :]).square()
        products = pattern * (of_chosen @ v.transpose(-1, -2))
        squared = lengths - 2 * products + of_chosen.square().sum(-1, keepdim=True)
        others = squared.masked_fill(chosen | ~visible, torch.inf).amin(-1, keepdim=True)
        margin = 1e-9 * of_chosen.square().sum(-1, keepdim=True)
        inside = (squared < others - margin) & chosen
        shares.append(inside.sum(-1).double() / number)
    return torch.cat(distances, -1).clamp(max=1.0), torch.cat(shares, -1)


_ROUNDING = 1e-9  # of the largest distance between keys
TRIALS = 100
MOST = 48  # keys of a prompt that are examined, since each may need a linear program


def unselectable_share(
    k: Float[Tensor, "prompt kv_head key d_head"],
) -> Float[Tensor, "prompt kv_head"]:
    """Return the share of keys that lie in the convex hull of the others."""
    import torch

    shares = [[float((~selectable(x.cpu().numpy())).mean()) for x in one] for one in k]
    return torch.tensor(shares, dtype=torch.double).reshape(k.shape[:2])


def selectable(keys: Float[np.ndarray, "key d"]) -> Bool[np.ndarray, "key"]:
    """Return which keys some query gives a larger score than every other key.

    Of keys that are equal none is selectable; a single key is.
    """
    import numpy as np

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
    import numpy as np
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
