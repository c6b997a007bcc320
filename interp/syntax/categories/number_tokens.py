"""Attention to numbers in digits."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="none: a kind of word is not a behaviour",
)
def number_tokens(model, lab, *, file: str = "people", length: int = 96):
    """Attend to numbers in digits, more than their share of the visible words.

    The attention on tokens of numbers, minus their share among the other visible words times the
    attention on these. An ideal head scores 1 minus that share.

    Null: the same score with the numbers of other texts at the same positions.

    Not for: arithmetic: a head that attends to numbers need not compute with them.

    Options:
        file: `people`, `topics` or `code` (written with the seed), or a file of labelled texts,
            whose labels are not read.
        length: tokens of each text, at most.
    """
    from interp.syntax.categories._made import NUMBER, with_pattern
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    texts = with_pattern(texts_of_source(file, lab.seed), NUMBER, "number_tokens")
    at = tokenized(model, texts, length)
    return trials_of(
        model, lab, at, of_keys("numbers", key_codes(at, None), at.words()), "number_tokens"
    )
