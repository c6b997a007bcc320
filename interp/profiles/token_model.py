"""The rung of the two tokens: what the pair of tokens alone can say about where a head attends.

To the logits of the rules it adds a bilinear function of the two tokens' embeddings and a linear
one of the key's. Embeddings are projected on their first principal components over the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.profiles.log_linear import HIDDEN

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from interp.model.model import Model

COMPONENTS = 64  # principal components of the embeddings
TIED = 1e-4  # of the largest spread: components closer than this share their space
RIDGE = 5e-2  # of the squared entries, in nats per unit of weight
RATE = 0.01
EPOCHS = 8
FACTORS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def token_vectors(model: Model, ids: Int[np.ndarray, " token"]) -> Float[Tensor, "token dim"]:
    """Return whitened principal components of the input embeddings, weighted by the corpus.

    A model without an embedding of ids gets indicators of its most frequent tokens.
    """
    counts = torch.from_numpy(np.bincount(ids, minlength=model.d_vocab)).float()
    embedding = getattr(model.module, "get_input_embeddings", lambda: None)()
    matrix = getattr(embedding, "weight", None)
    if matrix is None or matrix.dim() != 2 or len(matrix) < len(counts):
        frequent = counts.argsort(descending=True)[:COMPONENTS]
        return torch.nn.functional.one_hot(frequent, len(counts)).float().T.contiguous()
    x = matrix[: len(counts)].detach().float().cpu()
    x = x / x.norm(dim=1, keepdim=True).clamp_min(1e-6)
    share = counts / counts.sum()
    x = x - share @ x
    spread, axes = torch.linalg.eigh((x * share[:, None]).T @ x)
    spread, axes = spread.flip(0), _with_fixed_ties(spread.flip(0), axes.flip(1))
    n = min(COMPONENTS, int((spread > 1e-6 * spread[0]).sum()))
    return x @ axes[:, :n] / spread[:n].sqrt()


def _with_fixed_ties(spread: Tensor, axes: Tensor) -> Tensor:
    """Return axes of which those with equal spread are drawn by a seed, not by rounding."""
    ends = (spread[:-1] - spread[1:] > TIED * spread[0]).nonzero().flatten() + 1
    draw = torch.randn(axes.shape, generator=torch.Generator().manual_seed(0))
    groups = torch.tensor_split(torch.arange(len(spread)), ends)
    fixed = [axes[:, i] if len(i) == 1 else _drawn(axes[:, i], draw[:, i]) for i in groups]
    return torch.cat(fixed, dim=1)


def _drawn(axes: Tensor, draw: Tensor) -> Tensor:
    """Return an orthonormal basis of the space of some axes, which depends on the space alone."""
    return torch.linalg.qr(axes @ (axes.T @ draw)).Q


@dataclass(frozen=True, eq=False)
class TokenPage:
    """Queries of one document, for the fit of the two tokens.

    Args:
        base: logits of the rules.
        visible: keys that a query may see, without the sink.
        weight: of every query: its attention off the sink.
        queries: vectors of the queries, each after a 1.
        keys: vectors of the keys.
    """

    base: Float[Tensor, "head row pos"]
    visible: Bool[Tensor, "row pos"]
    weight: Float[Tensor, "head row"]
    queries: Float[Tensor, "row query"]
    keys: Float[Tensor, "pos key"]


@dataclass(frozen=True, eq=False)
class TokenGroup:
    """Documents of one step: what yields them, their observed mass times vectors, the weight."""

    pages: Callable[[], Iterable[TokenPage]]
    observed: Float[Tensor, "head query key"]
    weight: Float[Tensor, " head"]


def fit_tokens(groups: Sequence[TokenGroup]) -> Float[Tensor, "head query key"]:
    """Fit the bilinear function of all heads by Adam, one group of documents a step.

    The last group does not take part in the steps: with it every head's function is multiplied by
    the factor that predicts best, 0 where the tokens add nothing to the rules.
    """
    *fitted, last = groups
    here = torch.zeros(last.observed.shape)
    first, second = torch.zeros_like(here), torch.zeros_like(here)
    total = EPOCHS * len(fitted)
    for step in range(1, total + 1):
        group = fitted[(step - 1) % len(fitted)]
        slope = group.observed.float()
        for page in group.pages():
            slope = slope - _predicted(page, here)
        slope = slope / group.weight.clamp_min(1e-6)[:, None, None] - 2 * RIDGE * here
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope**2
        size = (second / (1 - 0.99**step)).sqrt() + 1e-6
        rate = RATE * (1 - step / (total + 1))
        here = here + rate * first / (1 - 0.9**step) / size
    return here * _factor(last, here)[:, None, None]


def _factor(group: TokenGroup, parameters: Tensor) -> Float[Tensor, " head"]:
    """Return the factor on the parameters under which a group of documents is likeliest."""
    factors = torch.tensor(FACTORS)
    mass = (group.observed * parameters).sum((1, 2))
    likelihood = factors[:, None].double() * mass
    for page in group.pages():
        logits = token_logits(parameters, page.queries, page.keys)
        for at, factor in enumerate(FACTORS):
            whole = (page.base + factor * logits).masked_fill(~page.visible, HIDDEN)
            likelihood[at] -= (page.weight * torch.logsumexp(whole, -1)).sum(1).double()
    return factors[likelihood.argmax(0)]


def token_logits(
    parameters: Float[Tensor, "head query key"],
    queries: Float[Tensor, "row query"],
    keys: Float[Tensor, "pos key"],
) -> Float[Tensor, "head row pos"]:
    """Return the bilinear function of all pairs."""
    return (queries @ parameters) @ keys.T


def _predicted(page: TokenPage, parameters: Tensor) -> Float[Tensor, "head query key"]:
    """Return the mass times vectors that the present parameters predict."""
    logits = page.base + token_logits(parameters, page.queries, page.keys)
    hidden = logits.masked_fill_(~page.visible, HIDDEN)
    mass = torch.softmax(hidden, -1).mul_(page.weight[..., None])
    return page.queries.T @ (mass @ page.keys)
