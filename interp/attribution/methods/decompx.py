"""DecompX: decomposition of all vectors of the model into parts of the tokens."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="gradients", softmax_only=True)
def decompx(example: Example) -> Scores:
    """Split the target's value into parts of the tokens, complete up to biases and positions.

    Every vector of the model is a sum of one part per token. Attention patterns, the scales of
    norms, the factors f(x)/x of activations and the routing weights of experts are held fixed, so
    the parts pass through the model by linear maps. The two sides of a gated MLP share their
    product in halves. Biases and positions belong to no token (the variant without bias): their
    contribution to the value is the residual. Instead of propagating the parts, one backward pass
    computes the same numbers.

    Not for: models in which biases contribute much of the value (see the residual), and cases in
    which the attention pattern is the reason, since it is held constant.

    Reference: Modarressi et al. 2023, "DecompX: Explaining Transformers Decisions by Propagating
    Token Decomposition".
    """
    from interp.attribution.gradients import gradients_under_rules
    from interp.attribution.rules import Rules

    rules = Rules("freeze", norm="freeze", activation="identity", split=True)
    return gradients_under_rules(example, rules, "biases and positions")
