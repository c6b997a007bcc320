"""Attended place in the source."""

from interp.heads.declaration import measurement


@measurement(
    unit="share of the source",
    low=0.0,
    high=1.0,
    requires=("cross",),
    task="none: attention to a place is not a behaviour",
)
def source_place(layer):
    """Mean attended position in the source: 0 at its first token, 1 at its last.

    Uniform attention has 0.5.

    Not for: sources of one token, which have no score.
    """
    from interp.heads.cross._places import attended_positions

    last = layer.call.v.shape[2] - 1
    return attended_positions(layer).mean(-1) / (last or float("nan"))
