"""First-token heads, or attention sinks."""

from interp.heads.declaration import detector


@detector(task="none: a head at rest is not needed for anything")
def first_token(query, key, *, tokens_of_sink: int = 1):
    """Attend to the first tokens of the prompt, where unused attention often rests.

    The first query rows, which see only targets, are not counted: a row must also have a key that
    is not a target.

    Not for: finding all sinks: they can be at any token (`sink` searches all positions), and in
    prompts without BOS the first token is a word.

    Options:
        tokens_of_sink: number of tokens that count as first.

    Reference: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks".

    >>> picture(first_token, "a b c")
      a b c
    a . . .
    b # . .
    c # . .
    """
    return (key < tokens_of_sink) & (query >= tokens_of_sink)
