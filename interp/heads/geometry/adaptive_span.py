"""Span of the soft mask of adaptive attention span."""

from interp.heads.declaration import measurement


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
