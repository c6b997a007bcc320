"""Previous-token heads."""

from interp.heads.declaration import detector


@detector(task="repeats")
def previous_token(query, key):
    """Attend to the token just before the current one.

    Not for: showing that a head takes part in induction: `k_composition` and an ablation test that.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".

    >>> picture(previous_token, "a b c a")
      a b c a
    a . . . .
    b # . . .
    c . # . .
    a . . # .
    """
    return key == query - 1
