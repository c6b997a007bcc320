"""Outliers among what heads write, by the largest."""

from interp.heads.declaration import Trials, experiment


@experiment(unit="size of an entry", low=0.0, requires=("tokens",))
def outliers_inf_norm(model, lab, *, n: int = 16, longest: int = 48):
    """The largest entry a head writes, in size: the infinity norm of its result over a prompt.

    Read it beside `outliers_kurtosis`: a head may write one large entry or large ones everywhere.

    Not for: comparing models: it is in units of the residual stream. Compare heads of one model.

    Options:
        n: prompts of random tokens.
        longest: tokens per prompt.

    Reference: Bondarenko et al. 2023, "Quantizable Transformers".
    """
    from interp.heads.outliers import random_tokens, result_inf_norm

    prompts = random_tokens(model, n=n, longest=longest, seed=lab.seed)
    values = result_inf_norm(model, prompts)
    lab.tell("outliers_inf_norm", n, n)
    return Trials(values)
