"""Norm of the gradient."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


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
