"""Attention sinks anywhere in a prompt."""

from interp.heads.declaration import Trials, experiment


@experiment(
    unit="attention per query",
    low=0.0,
    high=1.0,
    requires=("tokens",),
    chance="H_T / T for even attention over T tokens: 0.0929 for 48",
)
def sink(model, lab, *, n: int = 16, longest: int = 48, copies: int = 1):
    """Parks its attention on one token, wherever it stands: mean attention on its strongest sink.

    A key's attention is averaged over the queries that see it, which must be a quarter of all or
    more. Measured on random tokens, which hold nothing to find; a head that finds something in
    repeated tokens only is a sink here and none with `copies=8`: see `active_dormant`. The notes
    tell the sink metric of Gu et al. (share of heads and prompts above 0.3) and how many of those
    sinks are the first token. For texts of your own: `interp.heads.outliers.sink_mass`.

    Not for: prompts with something to find, or a threshold from another paper at another length:
    even attention alone gives H_T / T.

    Options:
        n: prompts.
        longest: tokens per prompt (Gu et al. take 64).
        copies: how often the random tokens are said.

    Reference: Gu et al. 2025, "When Attention Sink Emerges in Language Models".
    """
    from interp.core.errors import OptionError
    from interp.heads.outliers import random_tokens, sink_mass

    if copies < 1 or longest // copies < 2:
        raise OptionError(f"copies={copies}; at least 1, and two tokens each of {longest}")
    period = None if copies == 1 else (longest - 1) // copies
    prompts = random_tokens(model, n=n, longest=longest, period=period, seed=lab.seed)
    found = sink_mass(model, prompts)
    lab.tell("sink", n, n)
    notes = {
        "share of heads and prompts with a sink above 0.3": round(found.metric(), 4),
        "of these on the first token": round(found.at_first(), 4),
    }
    return Trials(found.mass, notes=notes)
