"""Ranks of keys and queries, before and after rotary embedding."""

from interp.core.declaration import like
from interp.heads.declaration import measurement


@measurement(unit="directions", low=1.0, requires=("qk",), end="low")
def key_rank(layer, *, share: float = 0.9):
    """Rank of a head's keys at 90 % of their variance.

    Principal components of the keys of one prompt (as they enter the scores); the smallest number
    whose variances sum to more than the share. Between 1 and d_head; keys without variance have no
    score. Heads that share keys share the score.

    Not for: prompts with fewer tokens than d_head, whose keys span at most their number minus one.

    Options:
        share: share of the variance.

    Reference: Singhania et al. 2024, "Loki: Low-rank Keys for Efficient Sparse Attention" (arXiv
    2406.02542; rank at 90 %). The published plots take an index that starts at 0, one less.
    """
    from interp.heads.geometry._spectra import centred_rank

    return centred_rank(layer.k, share)


@like(key_rank, requires=("turns",))
def key_rank_before_rotary(layer, *, share: float = 0.9):
    """Rank of a head's keys before rotary embedding at 90 % of their variance.

    Principal components of the keys of one prompt (as projected, before rotary embedding); the
    smallest number whose variances sum to more than the share. Between 1 and d_head; keys without
    variance have no score. Heads that share keys share the score.
    """
    from interp.heads.geometry._spectra import centred_rank

    return centred_rank(layer.before_turning("k"), share)


@like(key_rank)
def query_rank(layer, *, share: float = 0.9):
    """Rank of a head's queries at 90 % of their variance.

    Principal components of the queries of one prompt (as they enter the scores); the smallest
    number whose variances sum to more than the share. Between 1 and d_head; queries without
    variance have no score.

    Not for: prompts with fewer tokens than d_head, whose queries span at most their number minus
    one.
    """
    from interp.heads.geometry._spectra import centred_rank

    return centred_rank(layer.q, share)


@like(query_rank, requires=("turns",))
def query_rank_before_rotary(layer, *, share: float = 0.9):
    """Rank of a head's queries before rotary embedding at 90 % of their variance.

    Principal components of the queries of one prompt (as projected, before rotary embedding); the
    smallest number whose variances sum to more than the share. Between 1 and d_head; queries
    without variance have no score.
    """
    from interp.heads.geometry._spectra import centred_rank

    return centred_rank(layer.before_turning("q"), share)
