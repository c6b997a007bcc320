"""Length of the gradient."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target per embedding length", signed=False, needs="gradients")
def gradient_norm(example: Example) -> Scores:
    """Euclidean length of the derivative of the target by each token's embedding.

    How much a small change of the token could move the target; not whether it speaks for it.

    Not for: the direction of an effect: it is a length. Saturated answers have small gradients
    everywhere.

    Reference: Simonyan et al. 2014, "Deep Inside Convolutional Networks: Visualising Image
    Classification Models and Saliency Maps".
    """
    from interp.attribution.gradients import gradient

    return Scores(gradient(example).gradients[0].double().norm(dim=-1).cpu().numpy())
