"""Log-linear row models p(j | i) ~ base(j | i) exp(sum over k of lambda_k F_k(i, j)), by Newton.

The log-likelihood of a head needs its attention only through two sums: the mass that it puts on
every feature, and the weight of every query. All else depends on the features alone, so that a fit
needs no pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

RIDGE = 1e-3  # of the squared parameters, in nats per unit of weight
PASSES = 7
SETTLED = 1e-4  # nats of predicted gain at which a head is no longer moved
LARGEST = 3.0  # nats that a parameter may move in one step
HIDDEN = -1e9  # logit of a hidden key


@dataclass(frozen=True, eq=False)
class Features:
    """Values of features on pairs of a query and a key, each distinct combination once.

    Args:
        table: the distinct combinations.
        codes: the combination of every pair.
    """

    table: Float[Tensor, "feature combination"]
    codes: Int[Tensor, "row pos"]

    @classmethod
    def of(cls, values: Float[Tensor, "feature row pos"]) -> Features:
        """Find the distinct combinations; of rules there are a few hundred in a document."""
        flat = values.flatten(1)
        generator = torch.Generator().manual_seed(0)
        weights = torch.rand(len(flat), generator=generator, dtype=torch.double) + 0.5
        keys, codes = torch.unique(weights @ flat.double(), return_inverse=True)
        first = torch.zeros(len(keys), dtype=torch.long)
        first[codes] = torch.arange(flat.shape[1])
        return cls(flat[:, first], codes.unflatten(0, values.shape[1:]))

    def logits(self, parameters: Float[Tensor, "head feature"]) -> Float[Tensor, "head row pos"]:
        """Return the sum of features times parameters."""
        return (parameters @ self.table)[:, self.codes]

    def mass(self, pairs: Float[Tensor, "head row pos"]) -> Float[Tensor, "head combination"]:
        """Sum a number over the pairs of every combination."""
        masses = torch.zeros(len(pairs), self.table.shape[1])
        return masses.index_add_(1, self.codes.flatten(), pairs.flatten(1))

    def dense(self) -> Float[Tensor, "feature row pos"]:
        """Return the values on every pair."""
        return self.table[:, self.codes]


@dataclass(frozen=True, eq=False)
class Sheet:
    """Queries of one document.

    Args:
        features: values of all features.
        visible: keys that a query may see, without the sink.
        weight: of every query, of every head: its attention off the sink.
        base: logits of the model that the features are added to; None for uniform rows.
    """

    features: Features
    visible: Bool[Tensor, "row pos"]
    weight: Float[Tensor, "head row"]
    base: Float[Tensor, "head row pos"] | None = None


def log_rows(
    logits: Float[Tensor, "head row pos"], visible: Bool[Tensor, "row pos"]
) -> Float[Tensor, "head row pos"]:
    """Return log probabilities over the visible keys; a very negative number elsewhere."""
    return torch.log_softmax(logits.masked_fill(~visible, HIDDEN), -1)


@dataclass(eq=False)
class Fit:
    """Parameters of every head, with the curvature there.

    Args:
        parameters: the parameters.
        curvature: second derivatives of the loss, per unit of weight.
    """

    parameters: Float[Tensor, "head feature"]
    curvature: Float[Tensor, "head feature feature"]


def fit_row_models(
    sheets: Callable[[Int[Tensor, " head"]], Iterable[Sheet]],
    observed: Float[Tensor, "head feature"],
    weight: Float[Tensor, " head"],
    *,
    start: Fit | None = None,
    used: Bool[Tensor, "head feature"] | None = None,
    passes: int = PASSES,
    every: int = 1,
) -> Fit:
    """Maximise the likelihood of all heads at once; a step that does not help is halved."""
    heads, size = observed.shape
    used = torch.ones(heads, size, dtype=torch.bool) if used is None else used
    unit = weight.clamp_min(1e-9)[:, None].double()
    target = observed.double() / unit
    here = torch.zeros(heads, size, dtype=torch.double) if start is None else start.parameters
    best = torch.where(used, here.double(), 0)
    trial = best.clone()
    step = torch.zeros_like(best)
    loss = torch.full((heads,), torch.inf, dtype=torch.double)
    curvature = torch.eye(size, dtype=torch.double).repeat(heads, 1, 1)
    gain = torch.full((heads,), torch.inf, dtype=torch.double)
    for _ in range(passes):
        moving = (gain >= SETTLED).nonzero()[:, 0]
        if not len(moving):
            break
        mine = trial[moving]
        value, slope, bend = _sums(sheets(moving), mine, unit[moving], every)
        value = value - (mine * target[moving]).sum(1) + 0.5 * RIDGE * (mine**2).sum(1)
        slope = torch.where(used[moving], target[moving] - slope - RIDGE * mine, 0)
        better = value <= loss[moving] + 1e-12
        fresh = _step(slope, bend, used[moving])
        here = moving[better]
        best[here], loss[here], curvature[here] = mine[better], value[better], bend[better]
        step[here], gain[here] = fresh[better], 0.5 * (fresh * slope).sum(1)[better]
        step[moving[~better]] *= 0.5
        trial[moving] = best[moving] + step[moving]
    return Fit(best.float(), curvature)


def _step(slope: Tensor, curvature: Tensor, used: Tensor) -> Tensor:
    """Return the Newton step within the used parameters, of limited size."""
    free = used[:, :, None] & used[:, None, :]
    system = torch.where(free, curvature, 0)
    system = system + torch.diag_embed(torch.where(used, RIDGE, 1.0).double())
    step = torch.linalg.solve(system, slope[..., None])[..., 0]
    size = step.abs().amax(1, keepdim=True)
    return step * (LARGEST / size.clamp_min(LARGEST))


def _sums(
    sheets: Iterable[Sheet], parameters: Tensor, unit: Tensor, every: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log normalisers, predicted mass on features, and their covariance, per weight."""
    heads, size = parameters.shape
    value = torch.zeros(heads, dtype=torch.double)
    slope = torch.zeros(heads, size, dtype=torch.double)
    bend = torch.zeros(heads, size, size, dtype=torch.double)
    sampled = torch.zeros(heads, 1, dtype=torch.double)
    for at, sheet in enumerate(sheets):
        logits = sheet.features.logits(parameters.float())
        if sheet.base is not None:
            logits = logits + sheet.base
        logits = logits.masked_fill_(~sheet.visible, HIDDEN)
        top = logits.amax(-1, keepdim=True)
        pairs = logits.sub_(top).exp_()
        under = pairs.sum(-1, keepdim=True)
        value += (sheet.weight * (top + under.log())[..., 0]).double().sum(1)
        pairs = pairs.mul_(sheet.weight[..., None] / under)
        mass, table = sheet.features.mass(pairs), sheet.features.table
        slope += (mass @ table.T).double()
        if at % every == 0:
            squares = (table[:, None] * table[None]).flatten(0, 1)
            bend += (mass @ squares.T).unflatten(1, (size, size)).double()
            mean = torch.einsum("hij,kij->hik", pairs, sheet.features.dense())
            each = sheet.weight.clamp_min(1e-9)[..., None]
            bend -= torch.einsum("hik,hil->hkl", mean / each, mean).double()
            sampled += sheet.weight.double().sum(1, keepdim=True)
    return value / unit[:, 0], slope / unit, bend / sampled.clamp_min(1e-9)[..., None]


def sparse(fit: Fit, least: Float[Tensor, " head"]) -> Bool[Tensor, "head feature"]:
    """Return the features to keep: the weakest goes while its loss stays below `least` nats.

    The loss without a feature is that of the quadratic model at the optimum, in which the others
    move to their best values.
    """
    used = torch.ones(fit.parameters.shape, dtype=torch.bool)
    values = fit.parameters.double()
    bend = fit.curvature + RIDGE * torch.eye(used.shape[1], dtype=torch.double)
    inverse = torch.linalg.inv(bend)
    moving = torch.arange(len(used))
    while len(moving):
        kept, of_head = used[moving], torch.arange(len(moving))
        spread = inverse.diagonal(dim1=1, dim2=2)
        cost = torch.where(kept, 0.5 * values**2 / spread.clamp_min(1e-30), torch.inf)
        weakest = cost.argmin(1)
        gone = cost[of_head, weakest] < least[moving]
        moving, weakest, of_head = moving[gone], weakest[gone], torch.arange(int(gone.sum()))
        used[moving, weakest] = False
        # the best values of the kept ones, and their covariance, if this one is held at zero
        inverse, values = inverse[gone], values[gone]
        column = inverse[of_head, :, weakest]
        own = column[of_head, weakest][:, None]
        values = values - column * values[of_head, weakest][:, None] / own
        inverse = inverse - column[:, :, None] * column[:, None] / own[..., None]
        inverse[of_head, weakest, weakest] = 1.0
    return used


OFFSETS = (0, 1, 2, 3, 4, 6, 9, 14, 22, 35, 56, 90, 144, 233, 377, 610, 987, 10**9)
"""Edges of the bins of distance from query to key."""
EARLY = (1, 2, 3, 5, 9, 17)
"""Edges of the bins of the key's own position, behind the first token."""
QUERIES = (0, 8, 24, 64, 160, 10**9)
"""Edges of the bins of the query's position, each with a slope of its own over log distance."""
OFFSET_BINS = len(OFFSETS) - 1
_TABLE = 256  # positions of which the features of all pairs are kept


def position_features(rows: Int[np.ndarray, " row"], n: int) -> Float[Tensor, "feature row pos"]:
    """Return the features of every pair of a sampled query and a key.

    The first ones are the bins of distance, to earlier and then to later keys: the row model of the
    rung "offset" has only these.
    """
    if n <= _TABLE:
        return _features_of_all()[:, :, :n][:, torch.as_tensor(rows)]
    return _features_of(rows, n)


@cache
def _features_of_all() -> Float[Tensor, "feature row pos"]:
    return _features_of(np.arange(_TABLE), _TABLE)


def _features_of(rows: Int[np.ndarray, " row"], n: int) -> Float[Tensor, "feature row pos"]:
    query = torch.as_tensor(rows)[:, None]
    key = torch.arange(n)[None]
    back = query - key
    ranges = [(back >= a) & (back < b) for a, b in _bins(OFFSETS)]
    ranges += [(-back >= a) & (-back < b) for a, b in _bins(OFFSETS[1:])]
    ranges += [(key >= a) & (key < b) & (query >= 0) for a, b in _bins(EARLY)]
    near = torch.log1p(back.abs().float())
    slopes = [near * ((query >= a) & (query < b)) for a, b in _bins(QUERIES)]
    shares = [(key * 4 >= at * query) & (key * 4 < (at + 1) * query) for at in (0, 1, 2)]
    return torch.stack([x.float().expand(len(query), n) for x in (*ranges, *slopes, *shares)])


def logits_of_position(
    parameters: Float[Tensor, "head feature"], rows: Int[np.ndarray, " row"], n: int
) -> Float[Tensor, "head row pos"]:
    """Return the logits of a model of positions for some queries and all keys."""
    features = position_features(rows, n)
    return (parameters @ features.flatten(1)).unflatten(1, features.shape[1:])


N_OFFSETS = 2 * OFFSET_BINS - 1
"""Number of the features that are bins of distance."""


def _bins(edges: tuple[int, ...]) -> list[tuple[int, int]]:
    return [*pairwise(edges)]
