"""Heads that lower the logit of a token seen before."""

from interp.heads.declaration import experiment


@experiment(
    unit="logit",
    requires=("tokens", "causal"),
    chance="effect on another token of the prompt, drawn at random",
    end="high",
    task="none: it lowers right and wrong tokens alike; plain loss is measured",
)
def copy_suppression(
    model, lab, *, prompts: int = 12, max_length: int = 48, rows: int = 6, predicted: int = 3
):
    """Lower the logit of a token that earlier layers predict and that was seen before.

    At each row the token is the one among the tokens of the prompt so far that the residual stream
    before the head's layer predicts most strongly (logit lens); only rows where it is among the
    `predicted` best of the whole vocabulary count. Score = how much the part of the head's output
    that comes from the positions of this token lowers its logit below the mean logit of the
    prompt's other tokens, by itself. Prompts are lines of text, or repeated random tokens for a
    model without a tokenizer. A model of which no row qualifies gets no scores.

    Cost: One forward pass per prompt and layer, with patterns, and a logit lens per layer.

    Null: the same for another token of the prompt, drawn at random.

    Not for: heads that suppress tokens related to those that they attend to: only the token itself
    counts. The paper also keeps such pairs, and keeps only the part of attention that is explained
    by the prediction.

    Options:
        prompts: number of prompts.
        max_length: maximum tokens per prompt.
        rows: number of rows that are read per prompt, among those that qualify.
        predicted: a token counts as predicted if it is among so many best of the vocabulary.

    Reference: McDougall et al. 2023, "Copy Suppression: Comprehensively Understanding an Attention
    Head".
    """
    from interp.circuits.named._suppressed import lowered_by_copying

    return lowered_by_copying(model, lab, prompts, max_length, rows, predicted)


@experiment(
    unit="logit",
    requires=("tokens", "causal"),
    chance="effect of attention to another token of the first copy on that token",
    end="high",
    task="repeats",
)
def anti_induction(model, lab, *, trials: int = 12, max_length: int = 24, rows: int = 6):
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
        max_length: maximum tokens per copy, reduced to fit the model's positions.
        rows: number of rows of the second copy that are read per prompt.

    Reference: Olsson et al. 2022, "In-context Learning and Induction Heads" (heads with induction
    attention that lower the logit).
    """
    from interp.circuits.named._suppressed import lowered_by_induction

    return lowered_by_induction(model, lab, trials, max_length, rows)
