"""Attention sinks anywhere in a prompt."""

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
