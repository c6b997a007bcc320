"""Attention to the beginning of the source."""

from interp.heads.declaration import detector


@detector(sequences="two", task="none: attention to a place is not a behaviour")
def source_start(query, key):
    """Attend to the first token of the source.

    Unused cross attention can rest there.

    Not for: sources without a token that marks their beginning, where the first token is a word.

    >>> picture(source_start, "a b c")
      a b c
    a # . .
    b # . .
    c # . .
    """
    return (key == 0) & (query >= 0)
