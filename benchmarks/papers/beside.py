"""Forms of attention trained alike, measured beside one another seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from papers.finding import Numbers, claim
from training import alike

SOFTMAX = "plain_softmax"
KINDS = tuple(alike.ROWS)
ROWS = 64  # held out, of each kind


@torch.no_grad()
def loss(model: Any, kinds: Sequence[str] = KINDS, number: int = ROWS) -> float:
    """Return the mean of the held-out losses of some kinds of rows, in nats per token."""
    asked = [alike.asked_rows(model.config.variant, kind, number) for kind in kinds]
    each = [float(alike.mean_loss(model(rows.given).logits, rows)) for rows in asked]
    return sum(each) / len(each)


def losses(form: str, kinds: Sequence[str] = KINDS, number: int = ROWS, **sizes: Any) -> np.ndarray:
    """Return the loss of a form with each seed."""
    return np.array([loss(alike.trained(form, s, **sizes), kinds, number) for s in alike.SEEDS])


def apart(measure: Callable[[str, int], float], form: str) -> list[float]:
    """Return a measure of a form minus that of softmax, with each seed."""
    return [measure(form, s) - measure(SOFTMAX, s) for s in alike.SEEDS]


def maps(form: str, seed: int) -> np.ndarray:
    """Return the maps on held-out text, `[layer, row, head, query, key]`."""
    model = alike.loaded(form, seed)
    held: Any = model.capture(alike.asked_rows(form, "text", ROWS).given.tolist(), ["map"])
    return np.stack([held["map", layer].numpy() for layer in range(len(model.sites))])


def behind(form: str, base: str = SOFTMAX, kinds: Sequence[str] = KINDS, **how: Any) -> np.ndarray:
    """Return the loss of a form minus that of another of usual sizes, with each seed."""
    return losses(form, kinds, **how) - losses(base, kinds)


def beside(title: str, *pairs: Sequence[str], **how: Any) -> None:
    """Register a claim that is about the losses of forms, each beside softmax or another form."""

    @claim(title)
    def behind_others() -> Numbers:
        return tuple(behind(*pair, **how) for pair in pairs)
