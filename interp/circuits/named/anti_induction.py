"""Anti-induction heads."""

from interp.heads.declaration import experiment


@experiment(
    unit="logit",
    requires=("tokens", "causal"),
    chance="effect of attention to another token of the first copy on that token",
    end="high",
    task="repeats",
)
def anti_induction(model, lab, *, trials: int = 12, longest: int = 24, rows: int = 6):
    """Lower the logit of the token after the earlier copy of the current one, by attending to it.

    Prompts are random tokens, twice. At rows of the second copy only the part of a head's output
    that comes from the token that an induction head attends to is counted. Score = how much this
    part lowers that token's logit below the mean logit of the other tokens of the prompt, by
    itself, at the scale that the final norm has. An induction head has a negative score, and a head
    that attends there but does not write to the logits scores 0.

    Cost: One forward pass per prompt, with patterns.

    Null: the same for another token of the first copy, drawn at random.

    Not for: heads that lower a predicted token that was seen before for another reason than
    induction; that is `copy_suppression`.

    Options:
        trials: number of prompts; those with one period form a cluster.
        longest: maximum tokens per copy, reduced to fit the model's positions.
        rows: number of rows of the second copy that are read per prompt.

    Reference: Olsson et al. 2022, "In-context Learning and Induction Heads" (heads with induction
    attention that lower the logit).
    """
    from interp.circuits.named._suppressed import lowered_by_induction

    return lowered_by_induction(model, lab, trials, longest, rows)
