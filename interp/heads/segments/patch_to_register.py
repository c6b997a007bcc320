"""Heads of vision transformers whose patches attend to the registers."""

from interp.heads.declaration import detector


@detector(task="none: where a head looks is not yet what it does")
def patch_to_register(query, key, segments):
    """Attend from patches of an image to the register tokens of a vision transformer.

    Registers take over the role of the few patches that otherwise become sinks. Even attention
    scores the share of registers among all tokens.

    Not for: models without trained registers, and for images of different sizes: the share of
    registers differs.

    Reference: Darcet et al. 2024, "Vision Transformers Need Registers".

    >>> picture(patch_to_register, "special register register image image")
      special register register image image
    special . . . . .
    register . . . . .
    register . . . . .
    image . # # . .
    image . # # . .
    """
    return (segments[query] == "image") & (segments[key] == "register")
