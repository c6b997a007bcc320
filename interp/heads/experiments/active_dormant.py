"""Heads that are dormant on one kind of prompt and active on another."""

from interp.heads.declaration import experiment
from interp.heads.trials import Trials


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
