"""Attention to names of entities."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="none: a kind of word is not a behaviour",
)
def entities(model, lab, *, kind: str = "person", file: str = "people", length: int = 96):
    """Attend to names of one kind of entity, more than their share of the visible words.

    The attention on tokens of entities of the kind, minus their share among the other visible words
    times the attention on these. An ideal head scores 1 minus that share.

    Null: the same score with the entities of other texts at the same positions.

    Not for: names at fixed places, such as the beginning of every sentence, without a look at the
    null: a head that attends to such places scores as high on both.

    Options:
        kind: `person` or `place`, or a label of the file, such as PER or PERSON.
        file: `people` (documents that are written with the seed), or a file of labelled texts:
            CoNLL-2012, columns with BIO tags, or JSONL; see `interp.syntax.read_labelled_texts`.
        length: tokens of each text, at most.
    """
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import require_label, texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    texts = texts_of_source(file, lab.seed)
    require_label(texts, kind, file)
    at = tokenized(model, texts, length)
    return trials_of(model, lab, at, of_keys(kind, key_codes(at, kind), at.words()), "entities")
