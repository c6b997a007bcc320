"""Attention to one kind of token of source code."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="none: a kind of word is not a behaviour",
)
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
        length: tokens of each text, at most.
    """
    from interp.syntax.categories._measuring import of_keys, trials_of
    from interp.syntax.categories._sources import require_label, texts_of_source
    from interp.syntax.categories._texts import key_codes, tokenized

    texts = texts_of_source(file, lab.seed)
    require_label(texts, kind, file)
    at = tokenized(model, texts, length)
    return trials_of(model, lab, at, of_keys(kind, key_codes(at, kind), at.words()), "code_token")
