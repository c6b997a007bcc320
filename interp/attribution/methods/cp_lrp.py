"""CP-LRP: conservative relevance propagation."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError


@attribution(unit="target", signed=True, needs="gradients", softmax_only=True)
def cp_lrp(example: Example, *, activation: str = "gradient", gate: str = "half") -> Scores:
    """Compute gradient times input with attention patterns and the scales of norms held fixed.

    Both are treated as constants, and activations keep their plain derivative. By default the two
    sides of a gated MLP get half of the relevance each, as in `attn_lrp`; the paper has no gated
    MLPs. With gate="stop" the gate is a constant too, as in the code that Achtibat et al. 2024
    published for CP-LRP. With activation="identity" activations are treated as factors f(x)/x;
    together with gate="half" this equals `decompx`. One backward pass.

    The authors of LRP, the family of this rule, state in their code that it is patented and free
    for personal and scientific use only. This implementation was written from the formulas.

    Not for: cases in which the attention pattern itself is the reason: it is held constant, so the
    tokens that determined the pattern get no relevance for it.

    Args:
        example: the input and its target.
        activation: "gradient" or "identity".
        gate: "half" gives each side of a gated MLP half of the relevance; "stop" gives all of it to
            the side without an activation.

    Reference: Ali et al. 2022, "XAI for Transformers: Better Explanations through Conservative
    Propagation".
    """
    from interp.attribution.gradients import gradients_under_rules
    from interp.attribution.rules import Rules

    if gate not in ("half", "stop"):
        raise OptionError(f"unknown gate={gate!r}; known: half, stop")
    stop = gate == "stop"
    rules = Rules(
        "freeze",
        norm="freeze",
        activation=activation,  # type: ignore[arg-type]
        split=not stop,
        gate="stop" if stop else "share",
    )
    return gradients_under_rules(
        example,
        rules,
        "biases, positions, and the nonlinearity of activations",
    )
