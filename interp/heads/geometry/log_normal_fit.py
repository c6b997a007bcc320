"""Fit of attention weights by a log-normal distribution."""

from interp.heads.declaration import measurement


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
    from interp.heads.geometry._normality import normality

    return normality(layer, least)
