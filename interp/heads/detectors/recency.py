"""Recency heads."""

from interp.heads.declaration import detector


@detector(task="none: many behaviours use near tokens; plain loss is measured")
def recency(query, key, *, share: float = 0.25):
    """Attend to the most recent part of the visible tokens, in a window that grows with them.

    `local_window` uses a fixed number of tokens; this uses a share of them, so that uniform
    attention scores about the share at any length. Rows with only one token in the window, and rows
    that see nothing beyond it, are not counted.

    Not for: choosing the size of a cache, which is a number of tokens: use `local_window` or
    `streaming`.

    Options:
        share: share of the visible tokens that counts as recent, the current one included.

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
    # integers, so that every kind of array rounds identically
    part = round(1000 * share)
    window = (part * (query + 1) + 999) // 1000
    return (key <= query) & (key > query - window) & (window >= 2) & (window <= query)
