"""Attention of a closing bracket to its own opening bracket."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention above share",
    low=-1.0,
    high=1.0,
    requires=("tokens", "tokenizer"),
    chance="0 for uniform attention",
    task="brackets",
)
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
        length: tokens of each text, at most.
    """
    from interp.syntax.categories._made import with_brackets
    from interp.syntax.categories._measuring import of_brackets, trials_of
    from interp.syntax.categories._sources import texts_of_source
    from interp.syntax.categories._texts import bracket_codes, tokenized

    at = tokenized(model, with_brackets(texts_of_source(file, lab.seed)), length)
    category = of_brackets("matching brackets", bracket_codes(at))
    return trials_of(model, lab, at, category, "matching_bracket")
