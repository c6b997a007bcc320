"""Attention to the source token with the number of the decoder's row."""

from interp.heads.declaration import detector


@detector(sequences="two", task="none: attention to a place is not a behaviour")
def same_place(query, key):
    """Attend to the source token with the number of the decoder's row, as for copying in order.

    The row that emits target token t is row t, so this is the token in the same place of the
    source, both counted from 0.

    Not for: sources with tokens in front of their words, or translations in another order: use
    gold alignments (`interp study align`).

    >>> picture(same_place, "a b c")
      a b c
    a # . .
    b . # .
    c . . #
    """
    return key == query
