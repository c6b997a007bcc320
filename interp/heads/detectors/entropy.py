"""Entropy of attention."""

from interp.heads.declaration import statistic


@statistic(
    unit="nats",
    low=0.0,
    task="none: the spread of a pattern is not a behaviour",
)
def entropy():
    """Entropy of attention per query: minus the sum of p ln p over keys.

    A head that attends uniformly to everything before it has mean ln(T!)/T over T rows; a head that
    attends to one token has 0. The share of a learned sink (softmax weight on no token) is left
    out.

    Not for: comparing prompts of different lengths (even attention has a larger entropy on longer
    prompts), or measuring importance.

    Reference: per head in Michel et al. 2019, "Are Sixteen Heads Really Better than One?".
    """
    from interp_kernels.reductions import Entropy

    return Entropy()
