"""What changes when a token is not there."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.evaluation.removal import one_by_one, values_without
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="forward")
def occlusion(example: Example, *, how: str = "delete", batch_size: int = 16) -> Scores:
    """How much the target falls when each token is taken away: the reference of the others.

    One forward pass per token. It is an intervention, so it says what the model does on the
    changed input, which may be an unusual one; two tokens that say the same hide each other.

    Cost: One forward pass per token.

    Not for: inputs in which two tokens say the same: each hides the other. A text without a word
    may be one that the model has never seen; try another `how`.

    Args:
        how: delete, mask (the tokenizer's mask token), mean (the mean of the prompt's own token
            embeddings), or the id of a token to put in its place.
        batch_size: variants per forward pass.

    Reference: Zeiler and Fergus 2014, "Visualizing and Understanding Convolutional Networks";
    Li et al. 2016, "Understanding Neural Networks through Representation Erasure".
    """
    gone = one_by_one(range(len(example)), len(example))
    changed = values_without(example, gone, how, batch_size)
    return Scores(example.value - changed, notes={"how": how})
