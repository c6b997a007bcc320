"""Baselines: the norm of the embedding, and random scores, the null of attribution methods."""

from __future__ import annotations

import numpy as np

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="embedding length", signed=False, needs="forward")
def input_norm(example: Example) -> Scores:
    """Compute the Euclidean norm of each token's embedding, a baseline without model and target.

    A method that ranks tokens no better than this baseline has found rare words, not reasons.

    Cost: One look-up of the embeddings.

    Not for: explanations: it is a baseline, and a method that does no better has found rare words.
    """
    import torch

    from interp.attribution.gradients import embedded

    ids = torch.tensor([example.ids], device=example.model.device)
    return Scores(embedded(example.model, ids)[0].double().norm(dim=-1).cpu().numpy())


@attribution(unit="uniform draw", signed=False, needs="nothing")
def random_scores(example: Example, *, seed: int = 0) -> Scores:
    """Draw uniform random numbers, the null that every method must beat.

    Equal inputs and seeds give equal numbers.

    Null: this method is the null.

    Not for: anything other than the null.

    Args:
        example: the input and its target.
        seed: seed of the random numbers.
    """
    return Scores(np.random.default_rng([seed, *example.ids]).random(len(example)))
