"""Attention to brackets."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="brackets",
)
def brackets(model, lab, *, file: str = "code", length: int = 96):
    """Attend to brackets, more than their share of the visible tokens.

    The attention on brackets that have a partner, minus their share among the other visible tokens
    of words times the attention on these. An ideal head scores 1 minus that share.

    Null: the same score with the brackets of other texts at the same positions.

    Not for: finding the head that closes brackets: see `matching_bracket`.

    Options:
        file: `code` (pieces of Python, written with the seed), or a file of source code or of
            labelled texts. In texts that are not code every pair of `()`, `[]` and `{}` counts.
        length: tokens of each text, at most.
    """
    from interp.syntax.categories._made import with_brackets
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    at = tokenized(model, with_brackets(texts_of_source(file, lab.seed)), length)
    return trials_of(
        model, lab, at, of_keys("brackets", key_codes(at, None), at.words()), "brackets"
    )
