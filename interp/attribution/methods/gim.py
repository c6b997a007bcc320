"""Gradient interaction modifications."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="gradients")
def gim(
    example: Example, *, temperature: float = 2.0, norm: str = "freeze", split: bool = True
) -> Scores:
    """Gradient times input with a softened softmax in the backward pass.

    The softmax's derivative is taken at a temperature, so that a saturated pattern still passes
    a gradient to its scores; scales of norms are held fixed; products share in halves (values
    1/2, queries and keys 1/4, sides of a gated MLP 1/2); activations keep their derivative. With
    temperature 1, norm "exact" and no split it is `gradient_x_input`. One backward pass.

    Not for: exact shares of anything: its rules are chosen because they rank well.

    Args:
        temperature: of the softmax in the backward pass; the forward pass stays as it is.
        norm: "freeze" or "exact".
        split: whether factors of a product share.

    Reference: Edin et al. 2025, "GIM: Improved Interpretability for Large Language Models".
    """
    from interp.attribution.gradients import gradients_under_rules
    from interp.attribution.rules import Rules

    rules = Rules(temperature=temperature, norm=norm, split=split)  # type: ignore[arg-type]
    return gradients_under_rules(example, rules, "none: the rules do not keep the value")
