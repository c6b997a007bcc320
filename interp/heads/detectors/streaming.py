"""Streaming heads."""

from interp.heads.declaration import detector


@detector(task="none: many behaviours use near tokens; plain loss is measured")
def streaming(query, key, *, first: int = 1, last: int = 4):
    """Attend only to the first tokens and the last few, so that a cache of these is enough.

    Rows that see only these are not counted: every head would score 1 there. For long prompts the
    papers use 4 and 256, or 64 and 256.

    Not for: prompts hardly longer than the window, where few rows count. The default of 1 and 4
    tokens is for short prompts; real caches hold hundreds.

    Options:
        first: number of tokens at the start, where unused attention often rests.
        last: number of tokens at the end, the current one included.

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
