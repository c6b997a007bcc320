"""Attention weight from which a head counts as firing, chosen from the task's own pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import OptionError
from interp.core.ties import ordered, tied_with

if TYPE_CHECKING:
    from interp.circuits.linear_scores import LinearScores
    from interp.circuits.methods._seeds import Place

MOST = 0.5  # one key has most of the weight: published traces use this for every model
ABOVE_EVEN = 2.0  # times the weight of each key under uniform attention

Attends = tuple[float, float, float]
"""A seed at a position: its share of the effects, its largest weight, and the uniform weight."""


@dataclass(frozen=True)
class Threshold:
    """Attention weight from which heads fire, with the reason for its choice.

    Args:
        weight: The weight.
        why: The reason.
        held: Share of the seeds' effects at places that fire.
        at_most: The largest weight of a seed such that half of the effects are at or above it.
    """

    weight: float
    why: str
    held: float
    at_most: float


def attention_of(
    scores: LinearScores, starts: Sequence[dict[Place, float]], *, first: bool
) -> list[list[Attends]]:
    """Return, by prompt, how much the seeds attend to the key that they attend to most."""
    sites = {f"L{s.layer}H{h}": (s.layer, h) for s in scores.model.sites for h in range(s.n_heads)}
    attended = []
    for row, places in enumerate(starts):
        mine = []
        for (name, query), part in places.items():
            layer, head = sites[name]
            weights = scores.cache["pattern", layer][row, head, query]
            seen = int((weights > 0).sum())
            rest = weights if first else weights[1:]
            most = float(rest.max()) if len(rest) else 0.0
            mine.append((part, most, 1 / max(seen, 1)))
        attended.append(mine)
    return attended


def choose_threshold(attends: Sequence[Sequence[Attends]], reach: float, fires: float) -> Threshold:
    """Return the requested threshold, or choose it by a rule where `fires` is 0.

    Rule: seeds that hold `reach` of the effects, over all pairs, must fire. So the threshold is the
    largest weight that they reach, but at most 0.5, where most attention is on one key, and at
    least twice the weight of uniform attention, below which no key stands out.
    """
    if not 0 <= fires < 1:
        raise OptionError(f"fires={fires}; give a weight between 0 and 1, or 0 to choose it")
    part, weight, even = (
        np.array(x) for x in zip(*(a for mine in attends for a in mine), strict=True)
    )
    order = np.array(ordered(weight), dtype=int)
    held = part[order].cumsum() / part.sum()

    def reached(share: float) -> float:
        last = order[int(np.searchsorted(held, share - 1e-9))]
        return float(weight[tied_with(weight, last)].min())  # equal weights fire together

    if fires:
        chosen, why = fires, "as requested"
    else:
        least = ABOVE_EVEN * float(np.median(even))
        wanted = reached(reach)
        chosen = min(MOST, max(wanted, least))
        why = (
            f"at most {MOST:g}, where one key has most of the weight"
            if chosen == MOST
            else f"reached by seeds with {reach:.0%} of the effects"
            if wanted >= least
            else f"{ABOVE_EVEN:g} times uniform attention; seeds with {reach:.0%} of the effects"
            f" reach {wanted:.3g}"
        )
    return Threshold(chosen, why, float(part[weight >= chosen].sum() / part.sum()), reached(0.5))


def nothing_traced(model: str, seeds: Sequence[str], chosen: Threshold, n: int) -> OptionError:
    """Make the error for the case that no seed fires on any pair."""
    return OptionError(
        f"{model}: svd_trace traced nothing: on none of the {n} pairs does a head that acts on the"
        f" task ({', '.join(seeds)}) attend to one key with a weight of {chosen.weight:.3g}"
        f" ({chosen.why}); half of their effects come from places where the largest weight is at"
        f" most {chosen.at_most:.3g}. Give a lower fires=, or use a method that"
        " patches, such as screen_verify"
    )
