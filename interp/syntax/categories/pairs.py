"""Attention to tokens that belong to the query's."""

from interp.core.declaration import like
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


@like(coreference, task="brackets")
def matching_bracket(model, lab, *, file: str = "code", length: int = 96):
    """Attend from a closing bracket to its own opening bracket, not to the other ones.

    The attention of a closing bracket on its opening bracket, minus one over the number of visible
    opening brackets times the attention on all of them; averaged over the closing brackets that see
    two or more. 0 for a head that attends to all of them alike.

    Null: the same score with the brackets of other texts at the same positions.

    Not for: the last open bracket in general: in shallow code the own bracket is often the nearest
    one; a head that attends to the nearest bracket scores above 0.

    Options:
        file: `code` (pieces of Python, written with the seed), or a file of source code or of
            labelled texts. In texts that are not code every pair of `()`, `[]` and `{}` counts.
    """
    from interp.syntax.categories._made import with_brackets
    from interp.syntax.categories._measuring import of_brackets, trials_of
    from interp.syntax.categories._sources import texts_of_source
    from interp.syntax.categories._texts import bracket_codes, tokenized

    at = tokenized(model, with_brackets(texts_of_source(file, lab.seed)), length)
    category = of_brackets("matching brackets", bracket_codes(at))
    return trials_of(model, lab, at, category, "matching_bracket")


@like(coreference, task="none: a kind of word is not a behaviour")
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
    """
    from interp.syntax.categories._measuring import of_links, trials_of
    from interp.syntax.categories._sources import texts_of_source
    from interp.syntax.categories._texts import linked_codes, tokenized

    at = tokenized(model, texts_of_source(file, lab.seed), length)
    codes = linked_codes(at, None, common=True)
    return trials_of(model, lab, at, of_links("parts of speech", codes), "same_part_of_speech")


@like(coreference, task="none: a topic has no answer that can be scored")
def same_topic(model, lab, *, n: int = 16, topics: int = 3, each: int = 2, length: int = 128):
    """Attend to words on the current topic in other sentences, more than their share.

    Documents are sentences on several topics in random order, written with the seed; no noun occurs
    twice. The attention of a noun on the nouns of its topic in other sentences, minus their share
    among the nouns of all other visible sentences times the attention on these. An ideal head
    scores 1 minus that share.

    Null: the same score with the topics of other documents at the same positions.

    Not for: models that do not know the words of the topics; for topics of your own give a file
    with groups to `coreference`.

    Options:
        n: number of documents.
        topics: topics of each document.
        each: sentences on each topic.
        length: tokens of each document, at most.
    """
    from interp.syntax.categories._made import topic_texts
    from interp.syntax.categories._measuring import of_links, trials_of
    from interp.syntax.categories._texts import linked_codes, tokenized

    texts = topic_texts(n, topics=topics, each=each, seed=lab.seed)
    at = tokenized(model, texts, length)
    codes = linked_codes(at, "topic", common=True)
    return trials_of(model, lab, at, of_links("topics", codes), "same_topic")
