"""Current-token heads."""

from interp.heads.declaration import detector


@detector(task="none: no behaviour rests on the current token alone")
def current_token(query, key):
    """Attend to the current token itself.

    Not for: encoders with a mask token, and calling a head inactive: a head that attends to its own
    position can write as much as any other.

    >>> picture(current_token, "a b c")
      a b c
    a # . .
    b . # .
    c . . #
    """
    return key == query
