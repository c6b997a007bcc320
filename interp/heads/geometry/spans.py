"""Distances that attention spans."""

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


@measurement(unit="tokens", low=0.0, requires=("self",))
def adaptive_span(layer, *, ramp: int = 4, share: float = 0.95):
    """Smallest span whose soft mask keeps 95 % of a head's attention.

    The mask of adaptive attention span is 1 up to the span and falls to 0 over the ramp beyond it.
    Training with it learns a span per head; here the span is measured from a pattern: the smallest
    with which the mask keeps the share of the attention, summed over the queries of a prompt.
    `span` is the mean over queries of the window of each.

    Not for: models trained with the mask, whose learned span is a parameter; prompts of different
    lengths.

    Options:
        ramp: length of the slope, in tokens (the paper uses 32).
        share: share of the attention.

    Reference: Sukhbaatar et al. 2019, "Adaptive Attention Span in Transformers" (arXiv 1905.07799).
    """
    from interp.heads.geometry._spans import soft_span

    return soft_span(layer, ramp, share)


@measurement(unit="attention mass", low=0.0, high=0.5)
def triangle_spans(layer, *, width: int = 4):
    """Unevenness of attention across successive positions: triangles on the diagonal.

    For a position, the attention of it and the next queries on the keys before it, within `width`
    tokens on both sides, as a share of each query's attention on all these keys. The score is the
    standard deviation over positions. 0 for a window or even attention, which cross every position
    alike; large where spans of tokens attend to themselves and not across their ends.

    Not for: prompts shorter than three times the width, which have no score, and heads with a sink
    only: what they attend to nearby is small, and its share is noise.

    Options:
        width: tokens on each side of a position.

    Reference: Tang et al. 2024, "Ltri-LLM: Streaming Long Context Inference for LLMs with
    Training-Free Dynamic Triangular Attention Pattern" (arXiv 2412.04757; there by voting, to cut
    the context).
    """
    from interp.heads.geometry._spans import crossing_spread

    return crossing_spread(layer, width)


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

    distances = distances_that_hold(layer, share, first)
    return mean_of_rows(distances, ~distances.isnan())
