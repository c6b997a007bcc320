"""Effective rank of attention patterns."""

from interp.heads.declaration import measurement


@measurement(unit="directions", low=1.0, end="low")
def pattern_rank(layer, *, rows: int = 64):
    """Effective rank of a head's attention pattern over its last query rows.

    The exponential of the entropy of the singular values' shares: 1 if all rows are equal, the
    number of rows if they attend to different tokens each.

    Not for: comparing prompts of different lengths; the largest possible rank is their number of
    rows.

    Options:
        rows: number of last queries, so that memory stays linear in the length.

    Reference: Roy and Vetterli 2007, "The Effective Rank"; of attention, Bhojanapalli et al. 2020,
    "Low-Rank Bottleneck in Multi-head Attention Models".
    """
    import torch

    from interp.heads.geometry._spectra import last_rows
    from interp.heads.weights._rank import effective_rank

    singular = torch.linalg.svdvals(last_rows(layer, rows))
    return torch.where(singular[..., 0] > 0, effective_rank(singular, True), torch.nan)
