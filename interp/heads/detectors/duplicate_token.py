"""Duplicate-token heads."""

from interp.heads.declaration import detector


@detector(task="repeats")
def duplicate_token(query, key, tokens):
    """Attend to earlier copies of the current token.

    Not for: texts whose tokens repeat for other reasons (spaces, punctuation, `the`): the targets
    are then everywhere and the score is mostly the base rate. Compare with the null.

    Reference: Wang et al. 2022, "Interpretability in the Wild".

    >>> picture(duplicate_token, "a b a a")
      a b a a
    a . . . .
    b . . . .
    a # . . .
    a # . # .
    """
    return (key < query) & (tokens[key] == tokens[query])
