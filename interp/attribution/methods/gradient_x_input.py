"""Gradient times input, plain or under rules of relevance propagation, and the gradient's norm."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError


@attribution(unit="target", signed=True, needs="gradients")
def gradient_x_input(example: Example) -> Scores:
    """Multiply the derivative of the target by each token's embedding with that embedding.

    The total is the target's value. The scores sum to it only for a linear model without biases,
    so the residual shows how far from linear the model is at this input. If a norm directly follows
    the embeddings (BERT), the scores sum to almost zero.

    Not for: models with a norm directly after the embeddings (BERT), where the scores sum to almost
    zero. In deep models it is close to the baselines.

    Reference: Shrikumar et al. 2016, "Not Just a Black Box: Learning Important Features Through
    Propagating Activation Differences".
    """
    from interp.attribution.gradients import gradients_under_rules

    return gradients_under_rules(
        example, None, "biases, positions, and all that is not linear in the embeddings"
    )


@attribution(unit="target per embedding length", signed=False, needs="gradients")
def gradient_norm(example: Example) -> Scores:
    """Compute the Euclidean norm of the derivative of the target by each token's embedding.

    It measures the largest effect of a small change of the embedding, not the sign of the token's
    contribution.

    Not for: the sign of an effect: it is a norm. Saturated answers have small gradients
    everywhere.

    Reference: Simonyan et al. 2014, "Deep Inside Convolutional Networks: Visualising Image
    Classification Models and Saliency Maps".
    """
    from interp.attribution.gradients import gradient

    return Scores(gradient(example).gradients[0].double().norm(dim=-1).cpu().numpy())


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
