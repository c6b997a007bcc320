"""AttnLRP: layer-wise relevance propagation for transformers."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="gradients", softmax_only=True)
def attn_lrp(example: Example) -> Scores:
    """Propagate relevance to the tokens, including through attention patterns to queries and keys.

    The factors of a product share its relevance in halves (values 1/2, queries and keys 1/4 each,
    sides of a gated MLP 1/2), scales of norms are held fixed, activations are treated as factors
    f(x)/x, and the softmax keeps its derivative: the rules in the form of gradient times input. The
    softmax absorbs or adds relevance, so the scores need not add up to the value. One backward
    pass.

    The authors state in their code that LRP is patented and free for personal and scientific use
    only. This implementation was written from the formulas.

    Not for: scores that must sum to the answer: the softmax adds or absorbs relevance (the residual
    shows how much). Its authors state that it is patented, and free for personal and scientific
    use only.

    Reference: Achtibat et al. 2024, "AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for
    Transformers".
    """
    from interp.attribution.gradients import gradients_under_rules
    from interp.attribution.rules import Rules

    rules = Rules(norm="freeze", activation="identity", split=True)
    return gradients_under_rules(
        example, rules, "biases, positions, and relevance that softmaxes absorb or add"
    )
