"""Heads of repeated random tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.declaration import like
from interp.core.errors import OptionError, PromptError
from interp.heads.declaration import experiment

if TYPE_CHECKING:
    from torch import Tensor

    from interp.heads.declaration import Analysis
    from interp.heads.trials import Lab, Trials
    from interp.model.calls.sites import Site
    from interp.model.model import Model


@experiment(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="mean of (copies before the row) / (row + 1)",
    task="repeats",
)
def echo(
    model,
    lab,
    *,
    period: int = 12,
    copies: int = 4,
    trials: int = 12,
    per_group: bool = False,
):
    """Attend to all earlier copies of the current token, in repeated random tokens.

    The prompt is BOS and a block of random tokens repeated several times. Score = mean over the
    rows from the second copy on of the mass on earlier copies of the row's token. Targets are found
    by token, so tokens drawn twice from a small vocabulary count, and the mask is the model's own.
    The period differs between prompts (unless there is only one): with one period a head with a
    fixed offset would score high too.

    Not for: models with a small vocabulary and long periods, where tokens repeat within a copy; or
    choosing a threshold for cache compression without testing it.

    Options:
        period: maximum tokens per copy (the paper uses 2500); reduced to fit the model's positions.
        copies: number of copies in a prompt.
        trials: number of prompts; those with one period form a cluster.
        per_group: give every head the largest score of its key-value group, as the paper selects.

    Reference: Tang et al. 2024, "RazorAttention: Efficient KV Cache Compression Through Retrieval
    Heads".
    """
    from interp.heads.detectors.duplicate_token import duplicate_token

    return on_repeats(model, lab, duplicate_token, period, copies, trials, per_group)


@like(echo)
def razor_induction(
    model,
    lab,
    *,
    period: int = 12,
    copies: int = 4,
    trials: int = 12,
    per_group: bool = False,
):
    """Attend to the tokens after earlier copies of the current one, in repeated random tokens.

    The prompt is BOS and a block of random tokens repeated several times. Score = mean over the
    rows from the second copy on of the mass on the tokens after earlier copies of the row's token.

    Not for: replacing `induction`: it uses more copies, all rows of later copies and optionally the
    maximum of a key-value group.
    """
    from interp.heads.detectors.induction import induction

    return on_repeats(model, lab, induction, period, copies, trials, per_group)


def on_repeats(
    model: Model, lab: Lab, detector: Analysis, period: int, copies: int, trials: int, group: bool
) -> Trials:
    """Score a detector on repeated random tokens; rows of the first copy have no target."""
    from interp.core.prompts import repeats
    from interp.heads.engine import reduce_patterns
    from interp.heads.scoring import choose_engine
    from interp.heads.trials import Trials

    if copies < 2 or trials < 1:
        raise OptionError(
            f"copies={copies}, trials={trials}: there must be at least 2 copies and 1 trial"
        )
    if period < 2:
        raise PromptError(f"period={period}: a period has at least 2 tokens")
    prompts = repeats(model, n=trials, max_length=period, copies=copies, seed=lab.seed)
    bound = detector.bind()
    engine = choose_engine(model, prompts, trials, "auto")
    done, total = 0, len(model.sites)

    def advance() -> None:
        nonlocal done
        done += 1
        lab.progress(detector.name, done, total)

    [per_prompt] = reduce_patterns(
        model, prompts, [bound], batch_size=trials, engine=engine, advance=advance
    )
    values = {site: per_prompt.of(site) for site in per_prompt.values}
    if group:
        values = {site: per_group(x, site, "max") for site, x in values.items()}
    return Trials(values, notes={"prompts": prompts.design}, clusters=prompts.clusters)


def per_group(x: Tensor, site: Site, how: str) -> Tensor:
    """Return `[trial, head]` with every head set to the maximum or mean of its key-value group."""
    import torch

    groups = x.unflatten(-1, (site.n_kv_heads, -1))
    one = groups.amax(-1) if how == "max" else groups.mean(-1)
    return torch.repeat_interleave(one, groups.shape[-1], -1)
