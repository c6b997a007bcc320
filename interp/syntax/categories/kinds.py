"""Attention to tokens of one kind, more than their share."""

from interp.core.declaration import like
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


@like(brackets, task="none: a kind of word is not a behaviour")
def code_token(model, lab, *, kind: str = "operator", file: str = "code", length: int = 96):
    """Attend to one kind of token of source code, more than its share of the visible tokens.

    The attention of a token on others of the kind, minus their share among the other visible tokens
    times the attention on these. An ideal head scores 1 minus that share. Kinds of Python are those
    of its own tokenizer; white space is neither a query nor counted.

    Null: the same score with the kinds of other pieces of code at the same positions.

    Not for: models whose vocabulary was not made from code, which split it into letters.

    Options:
        kind: keyword, name, number, string, comment, operator, delimiter or bracket; with
            tree-sitter also the names of its grammar.
        file: `code` (pieces of Python that are written with the seed), or a file or folder of
            source code; languages other than Python need tree-sitter and its grammar.
    """
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import require_label, texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    texts = texts_of_source(file, lab.seed)
    require_label(texts, kind, file)
    at = tokenized(model, texts, length)
    return trials_of(model, lab, at, of_keys(kind, key_codes(at, kind), at.words()), "code_token")


@like(brackets, task="after_delimiters")
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


@like(code_token)
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
    """
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import require_label, texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    texts = texts_of_source(file, lab.seed)
    require_label(texts, kind, file)
    at = tokenized(model, texts, length)
    return trials_of(model, lab, at, of_keys(kind, key_codes(at, kind), at.words()), "entities")


@like(code_token)
def labelled(model, lab, *, label: str = "place", file: str = "people", length: int = 96):
    """Attend to tokens of a label of your own, more than their share of the visible words.

    The attention on tokens of the label, minus their share among the other visible words times the
    attention on these. An ideal head scores 1 minus that share. A token has the label of most of
    its characters. `interp texts categories MODEL --file FILE` scores all labels of a file in
    one run.

    Null: the same score with the labels of other texts at the same positions.

    Not for: a file with one text, whose labels have nothing to be compared with.

    Options:
        label: the label.
        file: a file of labelled texts, see `interp.syntax.read_labelled_texts`; or `people`,
            `topics`, `code` (written with the seed) or `treebank`.
    """
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import require_label, texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    texts = texts_of_source(file, lab.seed)
    require_label(texts, label, file)
    at = tokenized(model, texts, length)
    return trials_of(model, lab, at, of_keys(label, key_codes(at, label), at.words()), "labelled")


@like(code_token)
def number_tokens(model, lab, *, file: str = "people", length: int = 96):
    """Attend to numbers in digits, more than their share of the visible words.

    The attention on tokens of numbers, minus their share among the other visible words times the
    attention on these. An ideal head scores 1 minus that share.

    Null: the same score with the numbers of other texts at the same positions.

    Not for: arithmetic: a head that attends to numbers need not compute with them.

    Options:
        file: `people`, `topics` or `code` (written with the seed), or a file of labelled texts,
            whose labels are not read.
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


@like(code_token)
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
    """
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import require_label, texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    texts = texts_of_source(file, lab.seed)
    require_label(texts, tag, file)
    at = tokenized(model, texts, length)
    return trials_of(model, lab, at, of_keys(tag, key_codes(at, tag), at.words()), "part_of_speech")
