"""Copy-suppression heads."""

from interp.heads.declaration import experiment


@experiment(
    unit="logit",
    requires=("tokens", "causal"),
    chance="effect on another token of the prompt, drawn at random",
    end="high",
    task="none: it lowers right and wrong tokens alike; plain loss is measured",
)
def copy_suppression(
    model, lab, *, prompts: int = 12, longest: int = 48, rows: int = 6, predicted: int = 3
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
        longest: maximum tokens per prompt.
        rows: number of rows that are read per prompt, among those that qualify.
        predicted: a token counts as predicted if it is among so many best of the vocabulary.

    Reference: McDougall et al. 2023, "Copy Suppression: Comprehensively Understanding an Attention
    Head".
    """
    from interp.circuits.named._suppressed import lowered_by_copying

    return lowered_by_copying(model, lab, prompts, longest, rows, predicted)
