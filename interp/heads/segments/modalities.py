"""Attention between texts, images and registers."""

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


@detector(task="none: where a head looks is not yet what it does")
def text_to_image(query, key, segments):
    """Attend from tokens of text to the images among them.

    Rows that see no image, such as those before it, have no target and are not counted. Even
    attention scores the share of image tokens among those visible, which the null shows; prompts
    whose images have other numbers of tokens have another share.

    Not for: showing that a head uses the image: it can attend there and write nothing that is read.
    `interp study pictures MODEL -m grounding` ablates.

    >>> picture(text_to_image, "special image image a b")
      special image image a b
    special . . . . .
    image . . . . .
    image . . . . .
    a . # # . .
    b . # # . .
    """
    return (segments[query] == "text") & (segments[key] == "image")
