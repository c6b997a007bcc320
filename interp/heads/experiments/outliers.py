"""Outliers in the outputs of heads, and massive values in their queries and keys."""

from interp.core.declaration import like
from interp.heads.declaration import experiment
from interp.heads.trials import Trials


@experiment(
    unit="size of an entry",
    low=0.0,
    requires=("tokens",),
    task="none: the size of an output is not a behaviour",
)
def outliers_inf_norm(model, lab, *, n: int = 16, max_length: int = 48):
    """Largest absolute entry of a head's output over a prompt (infinity norm).

    Compare with `outliers_kurtosis`: a head may write one large entry or large ones everywhere.

    Not for: comparing models: it is in units of the residual stream. Compare heads of one model.

    Options:
        n: number of prompts of random tokens.
        max_length: tokens per prompt.

    Reference: Bondarenko et al. 2023, "Quantizable Transformers".
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import result_inf_norm

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    values = result_inf_norm(model, prompts)
    lab.progress("outliers_inf_norm", n, n)
    return Trials(values)


@like(
    outliers_inf_norm,
    unit="kurtosis",
    chance="value of random weights",
    task="none: the tails of an output are not a behaviour",
)
def outliers_kurtosis(model, lab, *, n: int = 16, max_length: int = 48):
    """Kurtosis of a head's output: how concentrated it is in few entries.

    Computed over all entries (tokens times d_model) of a prompt, not as excess kurtosis: 3 for
    Gaussian entries, large for a few outliers. It depends on the basis of the residual stream, as
    quantisation does. `interp.heads.outliers.layer_outliers` measures whole layers.

    Not for: claims that should not depend on the basis: a rotation of the residual stream changes
    it.
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import result_kurtosis

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    values = result_kurtosis(model, prompts)
    lab.progress("outliers_kurtosis", n, n)
    return Trials(values)


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


@like(massive_k, task="none: the size of queries is not a behaviour")
def massive_q(model, lab, *, n: int = 16, max_length: int = 48):
    """Largest channel norm of a head's queries, divided by the mean channel norm.

    A channel's norm is taken over the tokens of a prompt, on the queries that enter the scores
    (after rotary embedding and norms). Jin et al. call a channel massive above 5 times the mean.
    `interp.heads.outliers.disruption` tests what depends on it.

    Not for: deciding to protect a channel before `interp.heads.outliers.disruption` has shown that
    something depends on it.
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import massive
    from interp.heads.per_head import by_site

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    values = by_site(model, massive(model, prompts, "q"))
    lab.progress("massive_q", n, n)
    return Trials(values)
