"""Order in which the source is attended to."""

from interp.heads.declaration import measurement


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

    from interp.heads.cross._places import attended_positions

    places = attended_positions(layer)
    rows = torch.arange(places.shape[-1], device=places.device, dtype=places.dtype)
    if len(rows) < 3:
        return places.mean(-1) * torch.nan
    a, b = places - places.mean(-1, keepdim=True), rows - rows.mean()
    length = a.norm(dim=-1) * b.norm()
    return torch.where(length > 1e-12, (a * b).sum(-1) / length, torch.nan)
