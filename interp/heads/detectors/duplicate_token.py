"""Duplicate-token heads."""

from interp.heads.declaration import detector


@detector
def duplicate_token(query, key, tokens):
    """Attends to earlier copies of the current token.

    Reference: Wang et al. 2022, "Interpretability in the Wild".

    >>> picture(duplicate_token, "a b a a")
      a b a a
    a . . . .
    b . . . .
    a # . . .
    a # . # .
    """
    return (key < query) & (tokens[key] == tokens[query])
