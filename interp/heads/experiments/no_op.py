"""Heads that do nothing: small values, little written."""

from interp.core.declaration import like
from interp.heads.declaration import experiment
from interp.heads.trials import Trials


@experiment(
    unit="share of the usual value norm",
    high=1.0,
    requires=("tokens",),
    chance="0: even attention gets values of the usual size",
    end="high",
    task="none: a head that writes nothing is not needed for anything",
)
def no_op_value(model, lab, *, n: int = 16, max_length: int = 48):
    """Attend to tokens with small values, and so write little (a no-op).

    1 - (attention times value norm, summed over keys) / (mean value norm of the visible keys),
    averaged over queries: 1 if all attention is on values of size zero, 0 if attention is
    independent of their size, below 0 for a head that prefers large values. The head output may
    still be small for other reasons: see `no_op_written`.

    Not for: use alone: values can be small at the positions that matter. Compare with
    `no_op_written`.

    Options:
        n: number of prompts of random tokens.
        max_length: tokens per prompt.

    Reference: Bondarenko et al. 2023, "Quantizable Transformers" (heads that learn to do nothing).
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import value_shortfall

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    values = value_shortfall(model, prompts)
    lab.progress("no_op_value", n, n)
    return Trials(values)


@like(
    no_op_value,
    unit="share of the stream's norm",
    low=0.0,
    high=None,
    chance="value of random weights",
    end="low",
)
def no_op_written(model, lab, *, n: int = 16, max_length: int = 48):
    """Norm of a head's output divided by that of the residual stream it is added to.

    A no-op head has a score near 0, so the lowest are listed first. The score depends on the size
    of the output, not on attention: a head can attend to something and write nothing.

    Not for: post-norm models, in which the sum is scaled afterwards. A head may also be inactive on
    random tokens only.
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import written_share

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    values = written_share(model, prompts)
    lab.progress("no_op_written", n, n)
    return Trials(values)
