"""Attention to words of the current word's part of speech."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="none: a kind of word is not a behaviour",
)
def same_part_of_speech(model, lab, *, file: str = "treebank", length: int = 96):
    """Attend to words of the current word's own part of speech, more than their share.

    The attention of a word on other words of its tag, minus their share among the other visible
    words times the attention on these; averaged over the words that see both. An ideal head scores
    1 minus that share.

    Null: the same score with the parts of speech of other texts at the same positions.

    Not for: heads that attend to equal words (`duplicate_token`), which equal tags include.

    Options:
        file: `treebank` (the project's) or a file of labelled texts in which tags are groups, such
            as CoNLL-U; see `interp.syntax.read_labelled_texts`.
        length: tokens of each text, at most.
    """
    from interp.syntax.categories._measuring import of_links, trials_of
    from interp.syntax.categories._sources import texts_of_source
    from interp.syntax.categories._texts import linked_codes, tokenized

    at = tokenized(model, texts_of_source(file, lab.seed), length)
    codes = linked_codes(at, None, common=True)
    return trials_of(model, lab, at, of_links("parts of speech", codes), "same_part_of_speech")
