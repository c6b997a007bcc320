"""Massive values in queries and keys."""

from interp.heads.declaration import experiment
from interp.heads.trials import Trials


@experiment(
    unit="times the mean channel",
    low=1.0,
    requires=("tokens",),
    chance="value of random weights",
    task="none: the size of keys is not a behaviour",
)
def massive_k(model, lab, *, n: int = 16, max_length: int = 48):
    """Largest channel norm of a head's keys, divided by the mean channel norm.

    A channel's norm is taken over the tokens of a prompt, on the keys that enter the scores (after
    rotary embedding and norms). Jin et al. call a channel massive above 5 times the mean. Heads
    that share keys share the score. `interp.heads.outliers.disruption` tests what depends on it.

    Not for: models with a norm on the keys (Qwen 3, Gemma 3, OLMo 2), which evens out the channels.

    Options:
        n: number of prompts of random tokens.
        max_length: tokens per prompt.

    Reference: Jin et al. 2025, "Massive Values in Self-Attention Modules are the Key to Contextual
    Knowledge Understanding" (arXiv 2502.01563).
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import massive
    from interp.heads.per_head import by_site

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    values = by_site(model, massive(model, prompts, "k"))
    lab.progress("massive_k", n, n)
    return Trials(values)


@experiment(
    unit="times the mean channel",
    low=1.0,
    requires=("tokens",),
    chance="value of random weights",
    task="none: the size of queries is not a behaviour",
)
def massive_q(model, lab, *, n: int = 16, max_length: int = 48):
    """Largest channel norm of a head's queries, divided by the mean channel norm.

    A channel's norm is taken over the tokens of a prompt, on the queries that enter the scores
    (after rotary embedding and norms). Jin et al. call a channel massive above 5 times the mean.
    `interp.heads.outliers.disruption` tests what depends on it.

    Not for: deciding to protect a channel before `interp.heads.outliers.disruption` has shown that
    something depends on it.

    Options:
        n: number of prompts of random tokens.
        max_length: tokens per prompt.

    Reference: Jin et al. 2025, "Massive Values in Self-Attention Modules are the Key to Contextual
    Knowledge Understanding" (arXiv 2502.01563).
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import massive
    from interp.heads.per_head import by_site

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    values = by_site(model, massive(model, prompts, "q"))
    lab.progress("massive_q", n, n)
    return Trials(values)
