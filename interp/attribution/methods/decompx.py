"""Decomposition of the whole model into parts of its tokens."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="gradients")
def decompx(example: Example) -> Scores:
    """The target's number split into parts of the tokens, with nothing left but the biases.

    Every vector of the model is a sum of one part per token. Attention patterns, the scales of
    norms, the factors f(x)/x of activations and the routing weights of experts are held at what
    they are, so the parts pass through the model by linear maps. Two sides of a gated MLP share
    their product in halves. Biases and positions are no token's part (the variant without bias):
    the scores add up to the value but for their share, which is the residual. The parts are not
    carried through the model: one backward pass gives the same numbers.

    Not for: models whose biases carry much of the value (the residual says so), and cases in which
    the pattern is the reason, since it is held constant.

    Reference: Modarressi et al. 2023, "DecompX: Explaining Transformers Decisions by Propagating
    Token Decomposition".
    """
    from interp.attribution.gradients import gradients_under_rules
    from interp.attribution.rules import Rules

    rules = Rules("freeze", norm="freeze", activation="identity", split=True)
    return gradients_under_rules(
        example, rules, "exact; the residual is the share of biases, positions"
    )
