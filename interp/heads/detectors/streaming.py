"""Streaming heads."""

from interp.heads.declaration import detector


@detector
def streaming(query, key, *, first: int = 1, last: int = 4):
    """Attends to the first tokens and the last few alone: a cache of these would be enough.

    Rows that see no more than these do not count: every head would score 1 there. For long
    prompts the papers take 4 and 256, or 64 and 256.

    Not for: prompts hardly longer than the window, where few rows count. The default of 1 and 4
    tokens is for short prompts; caches take hundreds.

    Options:
        first: tokens at the start, where attention is parked.
        last: tokens at the end, the current one included.

    Reference: Xiao et al. 2024, "DuoAttention: Efficient Long-Context LLM Inference with Retrieval
    and Streaming Heads".

    >>> picture(streaming, "a b c d e", first=1, last=2)
      a b c d e
    a . . . . .
    b . . . . .
    c . . . . .
    d # . # # .
    e # . . # #
    """
    near = (key <= query) & (key > query - last)
    return ((key < first) | near) & (query >= first + last)
