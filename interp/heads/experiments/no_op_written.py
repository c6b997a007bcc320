"""No-op heads by the size of what they write."""

from interp.heads.declaration import experiment
from interp.heads.trials import Trials


@experiment(
    unit="share of the stream's norm",
    low=0.0,
    requires=("tokens",),
    chance="value of random weights",
    end="low",
    task="none: a head that writes nothing is not needed for anything",
)
def no_op_written(model, lab, *, n: int = 16, longest: int = 48):
    """Norm of a head's output divided by that of the residual stream it is added to.

    A no-op head has a score near 0, so the lowest are listed first. The score depends on the size
    of the output, not on attention: a head can attend to something and write nothing.

    Not for: post-norm models, in which the sum is scaled afterwards. A head may also be inactive on
    random tokens only.

    Options:
        n: number of prompts of random tokens.
        longest: tokens per prompt.

    Reference: Bondarenko et al. 2023, "Quantizable Transformers" (heads that learn to do nothing).
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import written_share

    prompts = random_tokens(model, n=n, longest=longest, seed=lab.seed)
    values = written_share(model, prompts)
    lab.tell("no_op_written", n, n)
    return Trials(values)
