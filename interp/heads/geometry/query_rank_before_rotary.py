"""Rank of queries before rotary embedding."""

from interp.heads.declaration import measurement


@measurement(unit="directions", low=1.0, requires=("turns",), end="low")
def query_rank_before_rotary(layer, *, share: float = 0.9):
    """Rank of a head's queries before rotary embedding at 90 % of their variance.

    Principal components of the queries of one prompt (as projected, before rotary embedding); the
    smallest number whose variances sum to more than the share. Between 1 and d_head; queries
    without variance have no score.

    Not for: prompts with fewer tokens than d_head, whose queries span at most their number minus
    one.

    Options:
        share: share of the variance.

    Reference: Singhania et al. 2024, "Loki: Low-rank Keys for Efficient Sparse Attention" (arXiv
    2406.02542; rank at 90 %). The published plots take an index that starts at 0, one less.
    """
    from interp.heads.geometry._spectra import centred_rank

    return centred_rank(layer.before_turning("q"), share)
