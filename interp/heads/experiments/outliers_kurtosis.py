"""Outliers among what heads write, by their kurtosis."""

from interp.heads.declaration import Trials, experiment


@experiment(unit="kurtosis", low=0.0, requires=("tokens",), chance="value of random weights")
def outliers_kurtosis(model, lab, *, n: int = 16, longest: int = 48):
    """How much of what a head writes lies in few entries: the kurtosis of its result.

    Over all entries (tokens times d_model) of a prompt, not the excess: 3 for Gaussian entries,
    large for a few outliers. It depends on the basis of the stream, as quantisation does. Per
    layer, for the stream and the blocks: `interp.heads.outliers.layer_outliers`.

    Not for: statements that do not depend on the basis: a rotation of the residual stream changes
    it.

    Options:
        n: prompts of random tokens.
        longest: tokens per prompt.

    Reference: Bondarenko et al. 2023, "Quantizable Transformers".
    """
    from interp.heads.outliers import random_tokens, result_kurtosis

    prompts = random_tokens(model, n=n, longest=longest, seed=lab.seed)
    values = result_kurtosis(model, prompts)
    lab.tell("outliers_kurtosis", n, n)
    return Trials(values)
