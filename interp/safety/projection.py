"""Projection of every head's output on the refusal direction, from one forward per prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.core.standard_errors import standard_error
from interp.core.table import HeadTable
from interp.model.calls.sites import Site
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model
from interp.safety.direction import Direction, at_layer
from interp.safety.prompts import PromptSets
from interp.safety.streams import at_the_end, reading_sites

if TYPE_CHECKING:
    from interp.model.model import Model

HeadValues = dict[Site, Float[Tensor, "prompt head"]]


@takes_model
def refusal_projection_scores(
    model: Model,
    harmful: Any,
    harmless: Any,
    direction: Direction | Tensor | None = None,
    *,
    against_harmless: bool = True,
    seed: int = 0,
) -> HeadTable:
    """Project every head's result at the last token on the refusal direction (RDSHA).

    The score is the mean over harmful prompts of <result, r> / <r, r>, minus the same over harmless
    prompts: the share of the direction r that the head adds to the stream. If r is the difference
    of the means of these prompts before a layer, the shares of the heads below it sum to 1 with
    those of the MLPs, the embedding and the biases behind a norm after attention. `sem` is that of
    a difference of two means of unequal variance. Effects through later layers and the final norm
    are not included. All heads cost one forward pass per prompt.

    Args:
        model: The model.
        harmful: Prompts that the model should decline: texts, ids or `Prompts`.
        harmless: Prompts that it should answer.
        direction: A direction, such as `chosen_direction(search_direction(...))`, or a vector. By
            default the difference of means before the last layer below 0.8 of the layers; then the
            prompts are split in halves, and each is projected on the direction of the other, since
            a head's noise is correlated with a direction that was made from the same prompts.
        against_harmless: False leaves the harmless prompts out of the score, as in the abstract of
            the paper; then a head that writes the same on all prompts counts too.
        seed: Seed of the split.

    The null of the table is empty. The experiment `interp.safety.experiments.refusal_projection`
    uses random weights as its null.

    Reference: Huang et al. 2025 (arXiv 2508.19697), whose code for this score is not published:
    the definition is from its abstract.

    Raises:
        PromptError: The two sets coincide or have the same mean stream.
        OptionError: The vector has another width, or length zero.

    Unit: share of the direction.

    Cost: One forward pass per prompt for all heads.

    Null: none of its own; the experiment of this name takes random weights.

    Not for: the prompts that the direction is from, without halves; and causal claims.
    """
    sets = PromptSets.of(model, harmful, harmless)
    if direction is None:
        values = crossed(model, sets, seed=seed)
        text = "difference of means, halves crossed"
    else:
        refusal = direction if isinstance(direction, Direction) else Direction(direction, -1, -1)
        values = projected(model, sets, refusal)
        text = (
            "given" if refusal.layer < 0 else f"layer {refusal.layer}, position {refusal.position}"
        )
    metric = "refusal_projection"
    metric += ":against_harmless=False" if not against_harmless else ""
    records = []
    for site, (bad, good) in values.items():
        x, y = bad.numpy(), good.numpy()
        score, sem, n = x.mean(0), standard_error(x.T), len(x)
        if against_harmless:
            score, sem, n = score - y.mean(0), np.hypot(sem, standard_error(y.T)), len(x) + len(y)
        records.append(
            {
                "model": model.name,
                "stack": site.stack,
                "layer": site.layer,
                "metric": metric,
                "score": score,
                "sem": sem,
                "n": n,
                "n_kv_heads": site.n_kv_heads,
                "kind": site.kind,
                "unit": "share of the direction",
            }
        )
    provenance = model_provenance(model) | sets.about()
    provenance |= {"direction": text, "position": -1, "against_harmless": against_harmless}
    provenance |= {"seed": seed, "null": "none", "edits": list(model.active_edits)}
    provenance |= {"made_by": "interp.safety.refusal_projection_scores"}
    return HeadTable.from_records(records, {(model.name, metric): provenance})


def projected(
    model: Model, sets: PromptSets, direction: Direction
) -> dict[Site, tuple[Tensor, Tensor]]:
    """Return the shares of a direction that every head writes on both sets, `[prompt, head]`."""
    vector = direction.vector.detach().cpu().double()
    if vector.shape != (model.d_model,):
        raise OptionError(
            f"a direction of shape {tuple(vector.shape)}; the stream of {model.name} has "
            f"{model.d_model} dimensions"
        )
    if not float(vector.norm()) > 0:
        direction.unit  # noqa: B018  raises the error
    by = vector / vector.norm() ** 2
    harmful, harmless = (_along(model, p, by) for p in (sets.harmful, sets.harmless))
    return {site: (harmful[site], harmless[site]) for site in harmful}


def crossed(
    model: Model, sets: PromptSets, *, layer: int | None = None, seed: int = 0
) -> dict[Site, tuple[Tensor, Tensor]]:
    """Project each half of the prompts on the direction of the other half.

    Sets of two or three prompts have halves of one prompt.
    """
    halves = sets.halves(seed)
    by_site: dict[Site, tuple[list[Tensor], list[Tensor]]] = {}
    for mine, other in (halves, halves[::-1]):
        direction = at_layer(model, other, layer)
        for site, (bad, good) in projected(model, mine, direction).items():
            both = by_site.setdefault(site, ([], []))
            both[0].append(bad)
            both[1].append(good)
    return {site: (torch.cat(bad), torch.cat(good)) for site, (bad, good) in by_site.items()}


def _along(model: Model, prompts: Prompts, by: Tensor) -> HeadValues:
    sites = reading_sites(model)
    values = {s: torch.empty(len(prompts), s.n_heads, dtype=torch.double) for s in sites}
    for which, results in at_the_end(model, prompts, ("result",)):
        for site in sites:
            values[site][which] = results["result", site.layer][:, 0] @ by
    return values


def as_trials(values: Mapping[Site, tuple[Tensor, Tensor]]) -> HeadValues:
    """Make one number per prompt, with the mean and the error of the difference of two sets.

    An experiment is scored by the mean of its trials and their standard error. These trials
    vary around the difference of the two means as the prompts do around their own mean, scaled so
    that the standard error is sqrt(var/n + var/n) of the two sets, whatever their sizes.
    """
    stacked = {}
    for site, sets in values.items():
        difference = sets[0].mean(0) - sets[1].mean(0)
        total = sum(map(len, sets))
        parts = []
        for x in sets:
            n = len(x)
            scale = math.sqrt(total * (total - 1) / (n * max(n - 1, 1)))
            parts.append(difference + scale * (x - x.mean(0)))
        stacked[site] = torch.cat(parts)
    return stacked
