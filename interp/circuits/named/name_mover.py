"""Name movers of the indirect-object task."""

from interp.heads.declaration import experiment


@experiment(
    unit="logit",
    requires=("tokens", "causal", "tokenizer"),
    chance="effect on prompts in which a third person gives",
    end="high",
    task="ioi",
)
def name_mover(model, lab, *, pairs: int = 32):
    """Write the name of the person who receives, in sentences where the other one gives.

    Prompts are "When Anna and Peter went to the park, Peter gave a ball to", in both orders of the
    names and several templates; a template is a cluster. Score = the head's direct effect on the
    logit of the receiver minus that of the giver at the last token. A model whose logits do not
    prefer the receiver gets no scores.

    Cost: One forward pass per prompt of both sides, and one per prompt for the measure.

    Null: the same on prompts in which a third person gives, so that neither name is right.

    Not for: heads that tell the movers where to look; those are `s_inhibition`.

    Options:
        pairs: number of pairs of prompts.

    Reference: Wang et al. 2022, "Interpretability in the Wild".
    """
    from interp.circuits.named._task import direct

    return direct(model, lab, "name_mover", "ioi", pairs)
