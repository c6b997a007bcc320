"""Induction heads."""

from interp.heads.declaration import detector


@detector(task="repeats")
def induction(query, key, tokens):
    """Attend to the token after an earlier copy of the current token.

    Also called prefix matching. A high score shows that the head attends there, not that it copies:
    combine it with `ov_copying` and an ablation.

    Not for: showing that a head copies, or that the model needs it. On prompts of one period, heads
    with a fixed offset score high too; the default prompts vary the period.

    Reference: Olsson et al. 2022, "In-context Learning and Induction Heads".

    >>> picture(induction, "a b c a b")
      a b c a b
    a . . . . .
    b . . . . .
    c . . . . .
    a . # . . .
    b . . # . .
    """
    return (key >= 1) & (key <= query) & (tokens[key - 1] == tokens[query])
