"""Window of attention beside the first keys."""

from interp.heads.declaration import measurement


@measurement(unit="tokens", low=0.0, requires=("self",))
def window_without_sink(layer, *, share: float = 0.95, first: int = 1):
    """Smallest window that holds 95 % of a query's attention beside the first keys.

    The window that a cache of the first keys and the most recent ones would need. Queries with less
    than 1 % of their attention beyond the first keys do not count.

    Not for: comparing prompts of different lengths.

    Options:
        share: share of the remaining attention.
        first: number of first keys that are kept in any case.

    Reference: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks" (arXiv
    2309.17453).
    """
    from interp.heads.geometry._spans import distances_that_hold
    from interp.heads.layer import mean_of_rows

    found = distances_that_hold(layer, share, first)
    return mean_of_rows(found, ~found.isnan())
