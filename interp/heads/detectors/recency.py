"""Recency heads."""

from interp.heads.declaration import detector


@detector
def recency(query, key, *, share: float = 0.25):
    """Attends to the most recent part of what it sees: a window that grows with the context.

    `local_window` asks for a fixed number of tokens; this asks for a share of them, so that an
    even spread scores about the share at any length. Rows with only one token in the window, and
    rows that see nothing beyond it, do not count.

    Not for: choosing the size of a cache, which is a number of tokens: use `local_window` or
    `streaming`.

    Options:
        share: part of the visible tokens that is recent, the current one included.

    Reference: Liu et al. 2024, "RecurFormer: Not All Transformer Heads Need Self-Attention" (there
    with a fixed window).

    >>> picture(recency, "a b c d e", share=0.5)
      a b c d e
    a . . . . .
    b . . . . .
    c . # # . .
    d . . # # .
    e . . # # #
    """
    # whole numbers, so that every kind of array rounds alike
    part = round(1000 * share)
    window = (part * (query + 1) + 999) // 1000
    return (key <= query) & (key > query - window) & (window >= 2) & (window <= query)
