"""Layer-wise relevance propagation for transformers."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="gradients")
def attn_lrp(example: Example) -> Scores:
    """Relevance that also runs through the attention pattern into queries and keys.

    Products share in halves (values 1/2, queries and keys 1/4 each, sides of a gated MLP 1/2),
    scales of norms are held fixed, activations count as factors f(x)/x, the softmax keeps its
    derivative: the rules in the form of gradient times input. The softmax swallows or adds
    relevance, so with attention the scores need not add up to the value. One backward pass.

    The authors say in their code that LRP is patented and free for personal and scientific use
    only. This is written from the formulas.

    Not for: scores that must sum to the answer: the softmax adds or absorbs relevance (the residual
    says how much). Its authors say that it is patented, and free for personal and scientific use
    only.

    Reference: Achtibat et al. 2024, "AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for
    Transformers".
    """
    from interp.attribution.gradients import gradients_under_rules
    from interp.attribution.rules import Rules

    rules = Rules(norm="freeze", activation="identity", split=True)
    return gradients_under_rules(
        example, rules, "up to biases, positions and what the softmaxes swallow or add"
    )
