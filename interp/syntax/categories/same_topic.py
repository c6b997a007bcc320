"""Attention to earlier words on the current topic."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="none: a topic has no answer that can be scored",
)
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
