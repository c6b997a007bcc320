"""Fit of attention weights by a log-normal distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.heads.declaration import measurement

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


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
