"""Attention distance."""

from interp.heads.declaration import statistic


@statistic(unit="tokens", low=0.0)
def attention_distance():
    """How far back a head looks: the mean distance between query and key, weighted by attention.

    A head that attends uniformly to everything before it has mean (T - 1)/4 over T rows. A head
    parked on the first token scores high without using what is there: read it beside `first_token`.

    Not for: showing that a head reads what is far: a head parked on the first token has a large
    distance and uses nothing there. Read it beside `first_token`.

    Reference: Raghu et al. 2021, "Do Vision Transformers See Like Convolutional Neural Networks?".
    """
    from interp_kernels.reductions import Distance

    return Distance()
