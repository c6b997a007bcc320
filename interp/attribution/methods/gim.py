"""GIM: gradient interaction modifications."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="gradients", softmax_only=True)
def gim(
    example: Example, *, temperature: float = 2.0, norm: str = "freeze", split: bool = True
) -> Scores:
    """Compute gradient times input with a softmax of higher temperature in the backward pass.

    The derivative of the softmax is taken at a temperature, so that a saturated pattern still
    passes a gradient to its scores. Scales of norms are held fixed, the factors of a product share
    its gradient in halves (values 1/2, queries and keys 1/4, sides of a gated MLP 1/2), and
    activations keep their derivative. With temperature 1, norm "exact" and no split it equals
    `gradient_x_input`. One backward pass.

    Not for: exact shares of the target: its rules were chosen because they rank tokens well.

    Args:
        example: the input and its target.
        temperature: temperature of the softmax in the backward pass; the forward pass is unchanged.
        norm: "freeze" to hold the scales of norms fixed, or "exact".
        split: True to give each factor of a product half of the gradient.

    Reference: Edin et al. 2025, "GIM: Improved Interpretability for Large Language Models".
    """
    from interp.attribution.gradients import gradients_under_rules
    from interp.attribution.rules import Rules

    rules = Rules(temperature=temperature, norm=norm, split=split)  # type: ignore[arg-type]
    return gradients_under_rules(example, rules, "rules that do not keep the value")
