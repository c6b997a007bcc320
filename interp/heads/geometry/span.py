"""Span of attention."""

from interp.heads.declaration import measurement


@measurement(unit="tokens", low=0.0, requires=("self",))
def span(layer, *, share: float = 0.95):
    """Smallest distance within which a query has 95 % of its attention, averaged over queries.

    The window around the query (behind it, if causal) that holds the share: 0 for a head that
    attends to the current token only, and for the query that sees no other. A sink makes it large:
    see `window_without_sink`.

    Not for: comparing prompts of different lengths.

    Options:
        share: share of the attention.

    Reference: Sukhbaatar et al. 2019, "Adaptive Attention Span in Transformers" (arXiv 1905.07799;
    there a learned mask).
    """
    from interp.heads.geometry._spans import distances_that_hold
    from interp.heads.layer import mean_of_rows

    return mean_of_rows(distances_that_hold(layer, share, 0), layer.sees > 0)
