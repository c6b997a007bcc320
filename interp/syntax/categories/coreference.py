"""Attention from a mention of an entity to its other mentions."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="none: a link between words has no answer that can be scored",
)
def coreference(model, lab, *, label: str = "mention", file: str = "people", length: int = 96):
    """Attend from a mention to other mentions of its entity, not to those of other entities.

    The attention of a mention's tokens on other mentions of its entity, minus their share among all
    other visible mentions times the attention on these; averaged over the tokens that see both. An
    ideal head scores 1 minus that share; a causal model sees earlier mentions only.

    Null: the same score with the mentions of other texts at the same positions.

    Not for: pronouns alone: repeated names are mentions too, which heads for equal tokens find.

    Options:
        label: label of the linked spans; `mention` in CoNLL-2012.
        file: `people` (documents that are written with the seed), or a file of labelled texts whose
            spans have groups; see `interp.syntax.read_labelled_texts`.
        length: tokens of each text, at most.
    """
    from interp.syntax.categories._measuring import of_links, trials_of
    from interp.syntax.categories._sources import require_label, texts_of_source
    from interp.syntax.categories._texts import linked_codes, tokenized

    texts = texts_of_source(file, lab.seed)
    require_label(texts, label, file)
    at = tokenized(model, texts, length)
    return trials_of(model, lab, at, of_links(label, linked_codes(at, label)), "coreference")
