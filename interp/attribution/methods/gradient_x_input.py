"""Gradient times input."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="gradients")
def gradient_x_input(example: Example) -> Scores:
    """Multiply the derivative of the target by each token's embedding with that embedding.

    The total is the target's value. The scores sum to it only for a linear model without biases,
    so the residual shows how far from linear the model is at this input. If a norm directly follows
    the embeddings (BERT), the scores sum to almost zero.

    Not for: models with a norm directly after the embeddings (BERT), where the scores sum to almost
    zero. In deep models it is close to the baselines.

    Reference: Shrikumar et al. 2016, "Not Just a Black Box: Learning Important Features Through
    Propagating Activation Differences".
    """
    from interp.attribution.gradients import gradients_under_rules

    return gradients_under_rules(
        example, None, "biases, positions, and all that is not linear in the embeddings"
    )
