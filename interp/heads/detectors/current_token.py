"""Current-token heads."""

from interp.heads.declaration import detector


@detector
def current_token(query, key):
    """Attends to the current token itself.

    >>> picture(current_token, "a b c")
      a b c
    a # . .
    b . # .
    c . . #
    """
    return key == query
