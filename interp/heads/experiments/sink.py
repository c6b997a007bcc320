"""Heads that rest on a sink: dormant heads, and heads whose attention does nothing."""

from interp.core.declaration import like
from interp.heads.declaration import experiment
from interp.heads.trials import Trials


@experiment(
    unit="attention per query",
    low=0.0,
    high=1.0,
    requires=("tokens",),
    chance="H_T / T for even attention over T tokens: 0.0929 for 48",
    task="none: a head at rest is not needed for anything",
)
def sink(model, lab, *, n: int = 16, max_length: int = 48, copies: int = 1):
    """Rest attention on one token at any position: mean attention on the strongest sink.

    A key's attention is averaged over the queries that see it, which must be at least a quarter of
    all. It is measured on random tokens, which contain no structure; a head that is active only on
    repeated tokens is a sink here and not with `copies=8`: see `active_dormant`. The notes report
    the sink metric of Gu et al. (share of heads and prompts above 0.3) and the share of those sinks
    on the first token. For user-supplied texts: `interp.heads.outliers.sink_mass`.

    Not for: prompts with structure, or a threshold from a paper at another length: uniform
    attention already gives H_T / T.

    Options:
        n: number of prompts.
        max_length: tokens per prompt (Gu et al. use 64).
        copies: number of copies of the random tokens in a prompt.

    Reference: Gu et al. 2025, "When Attention Sink Emerges in Language Models".
    """
    from interp.core.errors import OptionError
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import sink_mass
    from interp.heads.per_head import by_site

    if copies < 1 or max_length // copies < 2:
        raise OptionError(
            f"copies={copies}: there must be at least 1, and at least two tokens "
            f"per copy of the {max_length}"
        )
    period = None if copies == 1 else (max_length - 1) // copies
    prompts = random_tokens(model, n=n, max_length=max_length, period=period, seed=lab.seed)
    mass = sink_mass(model, prompts)
    lab.progress("sink", n, n)
    notes = {
        "share of heads and prompts with a sink above 0.3": mass.sink_metric,
        "of these on the first token": mass.at_first,
    }
    return Trials(by_site(model, mass), notes=notes)


@experiment(
    unit="attention per query",
    low=-1.0,
    high=1.0,
    requires=("tokens",),
    chance="0 for attention that is the same on both",
    task="none: what the head does where it is active is not known",
)
def active_dormant(model, lab, *, n: int = 16, max_length: int = 48, period: int = 8):
    """Rest attention on a sink in random tokens, and less so in repeated tokens.

    The mean attention on the head's strongest sink (see `sink`) on random tokens, minus that on
    repeated random tokens. Near 0 the two are equal, whether the head has a sink or not. For two
    user-supplied domains: `interp.heads.outliers.active_dormant_sinks`.

    Not for: comparing domains on the default prompts, which are random tokens and repeated ones.
    Give texts of two domains to `interp.heads.outliers.active_dormant_sinks`.

    Options:
        n: number of prompts of each kind.
        max_length: tokens per prompt.
        period: tokens of the repeated block; if two blocks exceed the model's positions, half of
            its positions.

    Reference: Guo et al. 2024, "Active-Dormant Attention Heads" (arXiv 2410.13835).
    """
    from interp.core.prompts import random_tokens
    from interp.heads.outliers import active_dormant_sinks as measured

    sizes = {"n": n, "max_length": max_length, "seed": lab.seed}
    fresh = random_tokens(model, **sizes)
    period = min(period, (len(fresh.ids[0]) - 1) // 2)
    again = random_tokens(model, period=period, **sizes)
    dormant, active = measured(model, fresh, again)
    lab.progress("active_dormant", n, n)
    values = {site: dormant[site] - active[site] for site in dormant}
    return Trials(values, notes={"tokens said again": period})


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
