"""A query's scores and weights: their spread, the softmax's gain, and a log-normal fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.heads.declaration import measurement

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


@measurement(unit="nats", low=0.0)
def score_spread(layer):
    """Spread of a query's scores over its visible keys: the inverse temperature.

    Scores as they enter the softmax, averaged over the queries that see at least two keys. 0 for
    uniform attention; attention weights with Gaussian scores are log-normal with this sigma, and
    the larger it is, the more concentrated they are.

    Not for: concentration that comes from a few outlying scores, such as a sink: see
    `log_normal_fit`.

    Reference: Nahshan et al. 2024, "Linear Log-Normal Attention with Unbiased Concentration" (arXiv
    2311.13541).
    """
    from interp.heads.layer import mean_of_rows
    from interp_kernels.reductions import Moments

    spread = layer.reduce(Moments()).variance.double().sqrt()
    return mean_of_rows(spread, layer.sees > 1)


@measurement(unit="weight per nat", low=0.0, high=0.5)
def softmax_sensitivity(layer):
    """Gain of the softmax: how much attention moves per unit change of a query's scores.

    The Frobenius norm of the softmax's derivative diag(a) - a a^T, averaged over queries that see
    two keys: 0 for a head on one key, 0.5 for attention split evenly between two keys, about
    1/sqrt(n) for uniform attention over n keys. A head in either extreme tells keys apart by small
    differences of scores only weakly.

    Not for: causal importance: a head can be insensitive to scores and still matter.

    Reference: Mudarisov et al. 2025, "Limitations of Normalization in Attention Mechanism" (arXiv
    2508.17821; there as a bound on the norm).
    """
    import torch

    from interp.heads.layer import mean_of_rows

    values = []
    for _, pattern, _ in layer.blocks():
        second, third = pattern.square().sum(-1), pattern.pow(3).sum(-1)
        values.append(((second - 2 * third + second.square()).clamp_min(0)).sqrt())
    return mean_of_rows(torch.cat(values, -1).clamp(max=0.5), layer.sees > 1)


@measurement(
    unit="squared correlation",
    low=0.0,
    high=1.0,
    chance="about 0.95 to 0.99 for Gaussian scores, by the number of keys",
)
def log_normal_fit(layer, *, least: int = 8):
    """Fit of a log-normal distribution to a query's attention weights.

    The squared correlation of a query's sorted scores with the normal scores of their ranks
    (Shapiro and Francia's statistic), averaged over queries: 1 for weights that are exactly
    log-normal, lower with outliers such as a sink. Queries whose scores are all equal are left out.

    Not for: short prompts: a few numbers always look Gaussian.

    Options:
        least: smallest number of visible keys of a query that counts.

    Reference: Nahshan et al. 2024, "Linear Log-Normal Attention with Unbiased Concentration" (arXiv
    2311.13541); Shapiro and Francia 1972.
    """
    return normality(layer, least)


def normality(layer: LayerCall, least: int) -> Float[Tensor, "prompt head"]:
    """Average the squared correlation of sorted scores with normal scores over queries."""
    import torch

    from interp.heads.layer import mean_of_rows

    values = []
    for rows, _, visible in layer.blocks():
        score = layer.call.scores(rows).double()
        seen = visible.expand_as(score)
        count = seen.sum(-1, keepdim=True)
        ordered = score.masked_fill(~seen, torch.inf).sort(-1).values
        rank = torch.arange(1, score.shape[-1] + 1, device=score.device, dtype=torch.double)
        inside = rank <= count
        ordered = ordered.masked_fill(~inside, 0)
        level = ((rank - 0.375) / (count + 0.25)).clamp(1e-9, 1 - 1e-9)
        expected = torch.special.ndtri(level).masked_fill(~inside, 0)
        centre = ordered.sum(-1, keepdim=True) / count.clamp_min(1)
        apart = (ordered - centre).masked_fill(~inside, 0)
        size = apart.square().sum(-1)
        fit = (apart * expected).sum(-1).square() / (size * expected.square().sum(-1)).clamp_min(
            1e-300
        )
        rounding = 1e-12 * (1 + ordered.abs().amax(-1).square()) * count[..., 0]
        known = (count[..., 0] >= max(least, 3)) & (size > rounding)
        values.append(torch.where(known, fit.clamp(max=1.0), torch.nan))
    fits = torch.cat(values, -1)
    return mean_of_rows(fits, ~fits.isnan())
