"""Local heads."""

from interp.heads.declaration import detector


@detector(task="none: many behaviours use near tokens; plain loss is measured")
def local_window(query, key, *, width: int = 4):
    """Attend within the last few tokens, the current one included.

    Rows that see only the window are not counted: every head would score 1 there.

    Not for: comparing prompts of different lengths: a fixed window holds a smaller share of a
    longer prompt. `recency` grows with the prompt.

    Options:
        width: number of tokens in the window.

    >>> picture(local_window, "a b c d", width=2)
      a b c d
    a . . . .
    b . . . .
    c . # # .
    d . . # #
    """
    return (key <= query) & (key > query - width) & (query >= width)
