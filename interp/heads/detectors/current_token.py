"""Current-token heads."""

from interp.heads.declaration import detector


@detector
def current_token(query, key):
    """Attends to the current token itself.

    Not for: encoders with a mask token, and calling a head inactive: attending to oneself can write
    as much as any other attention.

    >>> picture(current_token, "a b c")
      a b c
    a # . .
    b . # .
    c . . #
    """
    return key == query
