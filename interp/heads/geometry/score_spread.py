"""Standard deviation of attention scores."""

from interp.heads.declaration import measurement


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
