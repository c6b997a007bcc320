"""Selective induction heads."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="1 / lags of the mass on them",
)
def selective_induction(
    model, lab, *, lags: int = 3, states: int = 5, length: int = 48, sequences: int = 24
):
    """Attends to the token that decides the next one, at a lag to be found out from the sequence.

    Every prompt interleaves Markov chains: x_t depends on x_{t-k} alone, with one lag k from 1 to
    `lags` per prompt. Score = mass on x_{t+1-k}, mean over the second half of the rows; every lag
    has as many prompts, so that a head with a fixed lag scores what its null does. The null is the
    mass on the wrong lags, their mean. A model whose config has a `transition_matrix` is read on
    chains of that law (tokens 1 and up are its states), any other on random laws over random
    tokens, another in every round over the lags; a round is a cluster. The notes say how often the
    mass picks the likeliest lag, for the best head.

    Null: the mass on the wrong lags.

    Not for: models that were not trained on such chains and cannot know their law: they can only
    score on it by accident.

    Options:
        lags: the lags are 1 to so many.
        states: tokens of the chain; a model that states its law has its own.
        length: tokens per prompt, cut to what the model has positions for.
        sequences: prompts, rounded up to a multiple of `lags`.

    Reference: D'Angelo et al. 2025, "Selective Induction Heads: How Transformers Select Causal
    Structures in Context".
    """
    from interp.heads.declaration import Trials
    from interp.heads.experiments._lags import lag_masses

    found = lag_masses(model, lab, lags, states, length, sequences)
    null = "mass on the wrong lags"
    return Trials(found.right, found.wrong, null, found.notes(), clusters=found.rounds)
