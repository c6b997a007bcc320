"""Conservative propagation."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError


@attribution(unit="target", signed=True, needs="gradients")
def cp_lrp(example: Example, *, activation: str = "gradient", gate: str = "half") -> Scores:
    """Gradient times input with attention patterns and the scales of norms held fixed.

    Both are taken as constants and activations keep their plain derivative. By default the two
    sides of a gated MLP get a half each, as in `attn_lrp`; the paper has no gated MLPs. With
    gate="stop" the gate is a constant too, as in the code that Achtibat et al. 2024 publish for
    CP-LRP. With activation="identity" activations are taken as factors; with half gates that is
    `decompx`. One backward pass.

    The authors of LRP, the family this rule is from, say in their code that it is patented and
    free for personal and scientific use only. This is written from the formulas.

    Not for: cases in which the attention pattern itself is the reason: it is held constant, so
    whatever selected the token gets nothing.

    Args:
        activation: "gradient" or "identity".
        gate: "half" shares a gated MLP's product between its sides; "stop" gives it all to the
            side that passes no activation.

    Reference: Ali et al. 2022, "XAI for Transformers: Better Explanations through Conservative
    Propagation".
    """
    from interp.attribution.gradients import gradients_under_rules
    from interp.attribution.rules import Rules

    if gate not in ("half", "stop"):
        raise OptionError(f"gate={gate!r} is not known; known: half, stop")
    stop = gate == "stop"
    rules = Rules(
        "freeze",
        norm="freeze",
        activation=activation,  # type: ignore[arg-type]
        split=not stop,
        gate="stop" if stop else "share",
    )
    return gradients_under_rules(
        example, rules, "up to biases, positions, and what activations bend (their plain gradient)"
    )
