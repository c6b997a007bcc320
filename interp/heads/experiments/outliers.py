"""Outliers in the outputs of heads."""

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


@experiment(
    unit="kurtosis",
    low=0.0,
    requires=("tokens",),
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

    Options:
        n: number of prompts of random tokens.
        max_length: tokens per prompt.

    Reference: Bondarenko et al. 2023, "Quantizable Transformers".
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import result_kurtosis

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    values = result_kurtosis(model, prompts)
    lab.progress("outliers_kurtosis", n, n)
    return Trials(values)
