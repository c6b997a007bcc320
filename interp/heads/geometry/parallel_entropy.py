"""Entropy of attention over contexts that were encoded apart."""

from interp.heads.declaration import experiment
from interp.heads.trials import Trials


@experiment(
    unit="nats",
    requires=("tokens", "causal"),
    chance="0 in the first layer, and for heads that do not read what the context wrote",
    end="both",
    task="none: the entropy of attention over parallel contexts decides no answer",
)
def parallel_entropy(
    model,
    lab,
    *,
    n: int = 16,
    max_length: int = 48,
    pieces: int = 4,
    queries: int = 8,
    shared: int = 0,
):
    """Entropy of the last queries' attention if the context is encoded in pieces, minus if whole.

    All tokens but the last few are cut into pieces, and each piece attends to itself only, in every
    layer; the last queries see everything, as in parallel context encoding. Positions stay those of
    the whole prompt. Above 0 where attention gets more diffuse over contexts that were encoded
    apart. Random tokens, unless the notes say otherwise.

    Not for: the cost of reused positions, which parallel encoding may also have.

    Options:
        n: number of prompts of random tokens.
        max_length: tokens per prompt.
        pieces: number of pieces of the context; 1 gives 0 everywhere.
        queries: number of last tokens, which see every piece.
        shared: number of first tokens that all pieces see (a shared sink, the paper's remedy).

    Reference: Zhang et al. 2025, "Attention Entropy is a Key Factor: An Analysis of Parallel
    Context Encoding with Full-attention-based Pre-trained Language Models" (arXiv 2412.16545).
    """
    from interp.core.prompts import random_tokens
    from interp.heads.geometry._pieces import entropies

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    apart = entropies(model, prompts, pieces, queries, shared)
    whole = entropies(model, prompts, 1, queries, shared)
    lab.progress("parallel_entropy", n, n)
    return Trials(
        {site: apart[site] - whole[site] for site in apart},
        notes={"pieces": pieces, "queries": queries, "shared first tokens": shared},
    )
