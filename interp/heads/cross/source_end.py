"""Attention to the end of the source."""

from interp.heads.declaration import measurement


@measurement(
    unit="attention weight",
    low=0.0,
    high=1.0,
    requires=("cross",),
    task="none: attention to a place is not a behaviour",
)
def source_end(layer):
    """Weight on the last token of the source, usually its end token, averaged over rows.

    Unused cross attention often rests there.

    Not for: sources without an end token, where the last token is a word.
    """
    import torch

    return torch.cat([block.pattern[..., -1] for block in layer.blocks()], -1).mean(-1)
