"""Largest attention weight."""

from interp.heads.declaration import statistic


@statistic(
    unit="attention weight",
    low=0.0,
    high=1.0,
    task="none: the peak of a pattern is not a behaviour",
)
def largest_weight():
    """Largest weight of each row, averaged (a head's confidence).

    Not for: measuring importance by itself: a head can put its full weight on a token that it does
    not use, such as a sink.

    Reference: Voita et al. 2019, "Analyzing Multi-Head Self-Attention".
    """
    from interp_kernels.reductions import Largest

    return Largest()
