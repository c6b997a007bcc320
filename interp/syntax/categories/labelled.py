"""Attention to tokens of a user-supplied label."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="none: a kind of word is not a behaviour",
)
def labelled(model, lab, *, label: str = "place", file: str = "people", length: int = 96):
    """Attend to tokens of a label of your own, more than their share of the visible words.

    The attention on tokens of the label, minus their share among the other visible words times the
    attention on these. An ideal head scores 1 minus that share. A token has the label of most of
    its characters. `interp texts categories MODEL --file FILE` scores all labels of a file
    in one run.

    Null: the same score with the labels of other texts at the same positions.

    Not for: a file with one text, whose labels have nothing to be compared with.

    Options:
        label: the label.
        file: a file of labelled texts, see `interp.syntax.read_labelled_texts`; or `people`,
            `topics`, `code` (written with the seed) or `treebank`.
        length: tokens of each text, at most.
    """
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import require_label, texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    texts = texts_of_source(file, lab.seed)
    require_label(texts, label, file)
    at = tokenized(model, texts, length)
    return trials_of(model, lab, at, of_keys(label, key_codes(at, label), at.words()), "labelled")
