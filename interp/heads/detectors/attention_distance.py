"""Attention distance."""

from interp.heads.declaration import statistic


@statistic(
    unit="tokens",
    low=0.0,
    task="none: a distance is not a behaviour",
)
def attention_distance():
    """Mean distance between query and key, weighted by attention.

    A head that attends uniformly to everything before it has mean (T - 1)/4 over T rows. A head
    that rests on the first token scores high without using it: compare with `first_token`.

    Not for: showing that a head uses distant tokens: a head that rests on the first token has a
    large distance without using it. Compare with `first_token`.

    Reference: Raghu et al. 2021, "Do Vision Transformers See Like Convolutional Neural Networks?".
    """
    from interp_kernels.reductions import Distance

    return Distance()
