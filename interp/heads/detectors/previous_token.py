"""Previous-token heads."""

from interp.heads.declaration import detector


@detector
def previous_token(query, key):
    """Attends to the token just before the current one.

    Not for: showing that a head serves induction: `k_composition` and an ablation ask that.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".

    >>> picture(previous_token, "a b c a")
      a b c a
    a . . . .
    b # . . .
    c . # . .
    a . . # .
    """
    return key == query - 1
