"""Negative name movers of the indirect-object task."""

from interp.heads.declaration import experiment


@experiment(
    unit="logit",
    requires=("tokens", "causal", "tokenizer"),
    chance="effect on prompts in which a third person gives",
    end="high",
    task="ioi",
)
def negative_name_mover(model, lab, *, pairs: int = 32):
    """Lower the logit of the name that is right, in the sentences of `name_mover`.

    Score = minus the head's direct effect on the logit of the receiver minus that of the giver, so
    that a head that works against the answer has a positive score.

    Cost: One forward pass per prompt of both sides, and one per prompt for the measure.

    Null: the same on prompts in which a third person gives, so that neither name is right.

    Not for: whether a head suppresses any token that is predicted and was seen before; that is
    `copy_suppression`.

    Options:
        pairs: number of pairs of prompts.

    Reference: Wang et al. 2022, "Interpretability in the Wild".
    """
    from interp.circuits.named._task import direct

    return direct(model, lab, "negative_name_mover", "ioi", pairs, sign=-1)
