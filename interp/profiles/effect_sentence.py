"""The sentences on whether a head matters and what it writes, from its judged numbers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ALPHA = 0.05  # family-wise, over the heads that are ablated
LEAST_SAID = 1e-5  # nats below which a change is not told from rounding
LEAST_COPY = 0.1  # nats of logit from which a head is said to copy the attended token


def effect_sentences(effect: Mapping[str, Any], writes: Mapping[str, Any]) -> list[str]:
    """Return sentences on what a head writes and on the loss without it; none if not measured."""
    found = []
    per = effect.get("per", "token")
    copies = writes.get("copies")
    if copies is not None:
        if copies["low"] > 0 and copies["value"] >= LEAST_COPY:
            found.append(f"It copies the attended token ({copies['value']:+.1f} nats).")
        elif copies["high"] < 0 and copies["value"] <= -LEAST_COPY:
            found.append(f"It lowers the attended token ({copies['value']:+.1f} nats).")
    if {"loss", "p_corrected"} <= effect.keys():
        real = effect["p_corrected"] < ALPHA
        found.append(f"Without it the text {_change(effect['loss'], real, per)}.")
    elif "divergence_estimate" in effect:
        size = effect["divergence_estimate"]["value"]
        how = f"about {nats(size, size)}" if size >= LEAST_SAID else f"less than {LEAST_SAID:.5f}"
        found.append(
            f"Without it the predictions would change by {how} nats per {per} (an estimate by "
            "gradient)."
        )
    return found


def _change(one: Mapping[str, Any], real: bool, per: str) -> str:
    """Return the words for a change of the loss: its size, or the most that it can be."""
    low, high = one["low"], one["high"]
    if not real or low <= 0 <= high:
        most = max(abs(low), abs(high))
        if most < LEAST_SAID:
            return f"changes by less than {LEAST_SAID:.5f} nats per {per}"
        return f"changes by at most {nats(most, most)} nats per {per} either way"
    width = max(abs(low), abs(high))
    sign = 1 if one["value"] > 0 else -1
    ends = sorted((sign * low, sign * high))
    return (
        f"is {nats(abs(one['value']), width)} [{nats(ends[0], width)}, "
        f"{nats(ends[1], width)}] nats per {per} {'worse' if sign > 0 else 'better'}"
    )


def nats(value: float, size: float) -> str:
    """Return nats with as many digits as numbers of a size need."""
    digits = 2 if size >= 0.5 else 3 if size >= 0.01 else 4 if size >= 0.001 else 5
    return f"{value:.{digits}f}"
