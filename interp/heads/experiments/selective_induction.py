"""Selective induction heads."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="1 / lags of the mass on them",
    task="none: a model knows the chains only if it was trained on them",
)
def selective_induction(
    model, lab, *, lags: int = 3, states: int = 5, length: int = 48, sequences: int = 24
):
    """Attend to the token that determines the next one, at a lag inferred from the sequence.

    Every prompt interleaves Markov chains: x_t depends on x_{t-k} alone, with one lag k from 1 to
    `lags` per prompt. Score = mass on x_{t+1-k}, averaged over the second half of the rows; all
    lags have equally many prompts, so that a head with a fixed lag scores the same as its null. The
    null is the mean mass on the wrong lags. A model whose config has a `transition_matrix` is
    tested on chains of that matrix (its states are tokens 1 and up), any other on random matrices
    over random tokens, a new one in every round over the lags; a round is a cluster. The notes
    report how often the best head's mass is largest at the likeliest lag.

    Null: the mean mass on the wrong lags.

    Not for: models that were not trained on such chains and cannot know their transition matrix:
    they can score only by accident.

    Options:
        lags: the lags are 1 to so many.
        states: number of states of the chain; a model with a `transition_matrix` uses its own.
        length: tokens per prompt, reduced to fit the model's positions.
        sequences: number of prompts, rounded up to a multiple of `lags`.

    Reference: D'Angelo et al. 2025, "Selective Induction Heads: How Transformers Select Causal
    Structures in Context".
    """
    from interp.heads.experiments._lags import lag_masses
    from interp.heads.trials import Trials

    masses = lag_masses(model, lab, lags, states, length, sequences)
    null = "mass on the wrong lags"
    return Trials(masses.right, masses.wrong, null, masses.notes(), clusters=masses.rounds)
