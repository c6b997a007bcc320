"""No-op heads by what they write."""

from interp.heads.declaration import Trials, experiment


@experiment(
    unit="share of the stream's norm",
    low=0.0,
    requires=("tokens",),
    chance="value of random weights",
    end="low",
)
def no_op_written(model, lab, *, n: int = 16, longest: int = 48):
    """How much a head writes: the norm of its result over that of the stream it is added to.

    A no-op head has a score near 0, so the lowest are listed first. It is the size that counts, not
    the attention: a head can attend to something and write nothing.

    Not for: post-norm models, in which the sum is scaled afterwards. A head may also be silent on
    random tokens only.

    Options:
        n: prompts of random tokens.
        longest: tokens per prompt.

    Reference: Bondarenko et al. 2023, "Quantizable Transformers" (heads that learn to do nothing).
    """
    from interp.heads.outliers import random_tokens, written_share

    prompts = random_tokens(model, n=n, longest=longest, seed=lab.seed)
    values = written_share(model, prompts)
    lab.tell("no_op_written", n, n)
    return Trials(values)
