"""Heads that read an image from the text."""

from interp.heads.declaration import detector


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
