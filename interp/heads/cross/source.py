"""Attention of a decoder to places of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.heads.declaration import detector, measurement

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


@detector(sequences="two", task="none: attention to a place is not a behaviour")
def source_start(query, key):
    """Attend to the first token of the source.

    Unused cross attention can rest there.

    Not for: sources without a token that marks their beginning, where the first token is a word.

    >>> picture(source_start, "a b c")
      a b c
    a # . .
    b # . .
    c # . .
    """
    return (key == 0) & (query >= 0)


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


@detector(sequences="two", task="none: attention to a place is not a behaviour")
def same_place(query, key):
    """Attend to the source token with the number of the decoder's row, as for copying in order.

    The row that emits target token t is row t, so this is the token in the same place of the
    source, both counted from 0.

    Not for: sources with tokens in front of their words, or translations in another order: use
    gold alignments (`interp study align`).

    >>> picture(same_place, "a b c")
      a b c
    a # . .
    b . # .
    c . . #
    """
    return key == query


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
    last = layer.call.v.shape[2] - 1
    return attended_positions(layer).mean(-1) / (last or float("nan"))


@measurement(
    unit="correlation",
    low=-1.0,
    high=1.0,
    requires=("cross",),
    task="none: attention to a place is not a behaviour",
)
def source_order(layer):
    """Correlation over rows of the row's number and the attended position in the source.

    1 where attention moves through the source at an even pace, -1 where it goes backwards.

    Not for: decoder inputs of fewer than three tokens, and attention that stays in one place, which
    have no score.
    """
    import torch

    places = attended_positions(layer)
    rows = torch.arange(places.shape[-1], device=places.device, dtype=places.dtype)
    if len(rows) < 3:
        return places.mean(-1) * torch.nan
    a, b = places - places.mean(-1, keepdim=True), rows - rows.mean()
    length = a.norm(dim=-1) * b.norm()
    return torch.where(length > 1e-12, (a * b).sum(-1) / length, torch.nan)


def attended_positions(layer: LayerCall) -> Float[Tensor, "prompt head row"]:
    """Return the mean attended source position of every row, counted from 0."""
    import torch

    positions = []
    for block in layer.blocks():
        keys = torch.arange(block.pattern.shape[-1], device=block.pattern.device)
        positions.append((block.pattern * keys).sum(-1))
    return torch.cat(positions, -1)
