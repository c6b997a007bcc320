"""Outliers in head outputs, by the largest entry."""

from interp.heads.declaration import experiment
from interp.heads.trials import Trials


@experiment(
    unit="size of an entry",
    low=0.0,
    requires=("tokens",),
    task="none: the size of an output is not a behaviour",
)
def outliers_inf_norm(model, lab, *, n: int = 16, longest: int = 48):
    """Largest absolute entry of a head's output over a prompt (infinity norm).

    Compare with `outliers_kurtosis`: a head may write one large entry or large ones everywhere.

    Not for: comparing models: it is in units of the residual stream. Compare heads of one model.

    Options:
        n: number of prompts of random tokens.
        longest: tokens per prompt.

    Reference: Bondarenko et al. 2023, "Quantizable Transformers".
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import result_inf_norm

    prompts = random_tokens(model, n=n, longest=longest, seed=lab.seed)
    values = result_inf_norm(model, prompts)
    lab.tell("outliers_inf_norm", n, n)
    return Trials(values)
