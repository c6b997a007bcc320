"""Gap between the first two singular values of attention patterns."""

from interp.heads.declaration import measurement


@measurement(unit="share of the first singular value", low=0.0, high=1.0)
def singular_gap(layer, *, rows: int = 64):
    """One minus the second singular value of a pattern over the first, for its last query rows.

    1 if all rows are equal (the pattern mixes tokens at once), 0 if two directions are equally
    strong. Unlike eigenvalues, singular values of a causal pattern depend on all of its entries.

    Not for: prompts of one token, which have no second singular value.

    Options:
        rows: number of last queries, so that memory stays linear in the length.

    Reference: this project; for causal patterns in place of the gap of `spectral_gap`.
    """
    import torch

    from interp.heads.geometry._spectra import last_rows

    singular = torch.linalg.svdvals(last_rows(layer, rows))
    if singular.shape[-1] < 2:
        return torch.full(singular.shape[:-1], torch.nan)
    gap = 1 - singular[..., 1] / singular[..., 0].clamp_min(1e-300)
    return torch.where(singular[..., 0] > 0, gap, torch.nan)
