"""Occlusion: change of the target when a token is removed."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.evaluation.removal import one_by_one, values_without
from interp.attribution.example import Example


@attribution(unit="target", signed=True, needs="forward")
def occlusion(example: Example, *, how: str = "delete", batch_size: int = 16) -> Scores:
    """Measure the fall of the target when each token is removed, the reference for other methods.

    It is an intervention, so it measures the behaviour of the model on the changed input, which may
    be unusual. Two tokens with the same information hide each other's effect.

    Cost: One forward pass per token.

    Not for: inputs in which two tokens carry the same information: each hides the effect of the
    other. A text without one of its tokens may be unlike any training text; try another `how`.

    Args:
        example: the input and its target.
        how: delete, mask (the tokenizer's mask token), mean (the mean of the prompt's token
            embeddings), or the id of a token that replaces it.
        batch_size: variants per forward pass.

    Reference: Zeiler and Fergus 2014, "Visualizing and Understanding Convolutional Networks";
    Li et al. 2016, "Understanding Neural Networks through Representation Erasure".
    """
    gone = one_by_one(range(len(example)), len(example))
    changed = values_without(example, gone, how, batch_size)
    return Scores(example.value - changed, notes={"how": how})
