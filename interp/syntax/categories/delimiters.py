"""Attention to punctuation."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="after_delimiters",
)
def delimiters(model, lab, *, file: str = "treebank", length: int = 96):
    """Attend to the signs that end sentences and clauses, more than their share of the words.

    Delimiters are `. , ; : ! ?` before white space or the end. The attention on them, minus their
    share among the other visible words times the attention on these. An ideal head scores 1 minus
    that share.

    Null: the same score with the delimiters of other texts at the same positions.

    Not for: telling a sink from a reader of punctuation: many heads rest on delimiters whose values
    are small; compare with `no_op_value`.

    Options:
        file: `treebank`, `topics`, `people` or a file of labelled texts, whose labels are not read.
        length: tokens of each text, at most.
    """
    from interp.syntax.categories._made import DELIMITER, with_pattern
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    texts = with_pattern(texts_of_source(file, lab.seed), DELIMITER, "delimiters")
    at = tokenized(model, texts, length)
    return trials_of(
        model, lab, at, of_keys("delimiters", key_codes(at, None), at.words()), "delimiters"
    )
