"""Shared part of `echo` and `razor_induction`: repeated random tokens, scored by a detector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import repeats
from interp.heads.declaration import Analysis
from interp.heads.engine import reduce_patterns
from interp.heads.scoring import choose_engine
from interp.heads.trials import Lab, Trials
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model


def on_repeats(
    model: Model, lab: Lab, detector: Analysis, period: int, copies: int, trials: int, group: bool
) -> Trials:
    """Score a detector on repeated random tokens; rows of the first copy have no target."""
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
    groups = x.unflatten(-1, (site.n_kv_heads, -1))
    one = groups.amax(-1) if how == "max" else groups.mean(-1)
    return torch.repeat_interleave(one, groups.shape[-1], -1)
