"""Runs over prompts of any lengths without padding, with one number per prompt and head."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.prompts import Prompts
from interp.heads.one_call import BATCH, equal_lengths
from interp.heads.scoring import choose_engine
from interp.model.calls.call import Call
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model

HeadValues = dict[Site, Float[Tensor, "prompt head"]]


def each_call(
    model: Model,
    prompts: Any,
    measure: Callable[[Site, Call, str], tuple[Tensor, ...] | None],
    *,
    engine: str = "auto",
) -> dict[Site, tuple[Tensor, ...]]:
    """Return `measure(site, call, engine)` of every attention: tensors `[prompt, head]`."""
    tokenized = Prompts.of(prompts, model)
    tokenized.check(model)
    results: dict[Site, tuple[Tensor, ...]] = {}
    chosen = choose_engine(model, tokenized, BATCH, engine)
    for which, batch in equal_lengths(tokenized):

        def visit(site: Site, call: Call, real: Tensor, which: list[int] = which) -> None:
            model.require_finite(call, site)
            values = measure(site, call, chosen)
            if values is None:
                return
            if site not in results:
                results[site] = tuple(
                    torch.full((len(tokenized), *x.shape[1:]), torch.nan, dtype=torch.double)
                    for x in values
                )
            for whole, x in zip(results[site], values, strict=True):
                whole[which] = x.double().cpu()

        model.read(batch, visit, stage="mix")  # a measure may change patterns
    return results


def captured(
    model: Model,
    prompts: Any,
    names: tuple[str, ...],
    measure: Callable[[Site, dict[str, Tensor]], Tensor],
) -> HeadValues:
    """Return `measure(site, {name: activation})` of captured activations: `[prompt, head]`."""
    tokenized = Prompts.of(prompts, model)
    tokenized.check(model)
    parts: dict[Site, list[Tensor]] = {site: [] for site in model.sites}
    order: list[int] = []
    for which, batch in equal_lengths(tokenized):
        order += which
        cache = model.capture(batch, names)
        for site in model.sites:
            values = {name: cache[name, site.layer, site.stack].double() for name in names}
            parts[site].append(measure(site, values).cpu())
    back = torch.tensor(order).argsort()
    return {site: torch.cat(x)[back] for site, x in parts.items()}
