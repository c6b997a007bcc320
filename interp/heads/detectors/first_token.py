"""First-token heads, or attention sinks."""

from interp.heads.declaration import detector


@detector
def first_token(query, key, *, tokens_of_sink: int = 1):
    """Attends to the first tokens of the prompt, where heads park attention they do not use.

    The first query rows, which see nothing else, do not count: a row has a target only when it
    also has a key that is none.

    Not for: finding sinks: they can stand on any token (`sink` looks everywhere), and in prompts
    without BOS the first token is a word.

    Options:
        tokens_of_sink: how many tokens count as first.

    Reference: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks".

    >>> picture(first_token, "a b c")
      a b c
    a . . .
    b # . .
    c # . .
    """
    return (key < tokens_of_sink) & (query >= tokens_of_sink)
