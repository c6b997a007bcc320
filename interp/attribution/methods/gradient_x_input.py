"""Gradient times input."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="gradients")
def gradient_x_input(example: Example) -> Scores:
    """Derivative of the target by each token's embedding, times that embedding.

    The total is the target's value. The scores reach it only where the model is linear without
    biases, so the residual says how far from linear the model is at this input. A norm in front
    of everything (BERT) makes the scores add up to nearly nothing.

    Not for: models with a norm in front of everything (BERT), where the scores cancel to almost
    nothing. In deep models it is close to the baselines.

    Reference: Shrikumar et al. 2016, "Not Just a Black Box: Learning Important Features Through
    Propagating Activation Differences".
    """
    from interp.attribution.gradients import gradients_under_rules

    return gradients_under_rules(
        example, None, "only for a linear model without biases and positions"
    )
