"""Conservative propagation."""

from __future__ import annotations

from interp.attribution.declare import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="gradients")
def cp_lrp(example: Example, *, activation: str = "gradient") -> Scores:
    """Gradient times input with attention patterns and the scales of norms held fixed.

    Both are taken as constants, activations keep their plain derivative, and the two sides of a
    gated MLP get a half each. With activation="identity" activations are taken as factors too;
    that is `decompx`. One backward pass.

    The authors of LRP, the family this rule is from, say in their code that it is patented and
    free for personal and scientific use only. This is written from the formulas.

    Args:
        activation: "gradient" or "identity".

    Reference: Ali et al. 2022, "XAI for Transformers: Better Explanations through Conservative
    Propagation".
    """
    from interp.attribution.gradients import gradient_scores
    from interp.attribution.rules import Rules

    rules = Rules("freeze", norm="freeze", activation=activation, split=True)  # type: ignore[arg-type]
    return gradient_scores(
        example, rules, "up to biases, positions, and what activations bend (their plain gradient)"
    )
