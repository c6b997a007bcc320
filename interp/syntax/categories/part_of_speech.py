"""Attention to words of one part of speech."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="none: a kind of word is not a behaviour",
)
def part_of_speech(model, lab, *, tag: str = "NOUN", file: str = "treebank", length: int = 96):
    """Attend to words of one part of speech, more than their share of the visible words.

    The attention of a word on other words of the tag, minus the share of the tag among the visible
    other words times the attention on these; averaged over the words that see both. An ideal head
    scores 1 minus that share. Tokens of no word (special tokens, white space) are neither queries
    nor counted.

    Null: the same score with the parts of speech of other texts at the same positions, so that a
    head that attends by position scores the same on both.

    Not for: showing that a head reads grammar: the words of a tag share letters and meanings, and a
    random head prefers some words to others. Compare with random weights.

    Options:
        tag: a universal part of speech, such as NOUN, VERB, DET or PUNCT, or a label of the file.
        file: `treebank` (the project's, four sentences in a text) or a file of labelled texts; see
            `interp.syntax.read_labelled_texts`.
        length: tokens of each text, at most.
    """
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import require_label, texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    texts = texts_of_source(file, lab.seed)
    require_label(texts, tag, file)
    at = tokenized(model, texts, length)
    return trials_of(model, lab, at, of_keys(tag, key_codes(at, tag), at.words()), "part_of_speech")
