"""Forms of attention trained alike, measured beside one another seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.paper_findings import Finding
from papers.finding import below
from training import alike

SOFTMAX = "plain_softmax"
KINDS = tuple(alike.ROWS)
COMPARABLE = 0.05  # nats per token: the largest loss by which a form counts as no worse
ROWS = 64  # held out, of each kind
ALIKE = "trained alike for 600 steps (two layers, four heads; text, copies, recall), 3 seeds"
SAMPLES = f"{len(alike.SEEDS)} seeds, {ROWS} held-out rows of each kind"


@torch.no_grad()
def loss(model: Any, kinds: Sequence[str] = KINDS, number: int = ROWS) -> float:
    """Return the mean of the held-out losses of some kinds of rows, in nats per token."""
    total = 0.0
    for kind in kinds:
        rows = alike.asked_rows(model.config.variant, kind, number)
        total += float(alike.mean_loss(model(rows.given).logits, rows))
    return total / len(kinds)


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


def no_worse(
    form: str,
    base: str = SOFTMAX,
    kinds: Sequence[str] = KINDS,
    bound: float = COMPARABLE,
    **sizes: Any,
) -> Finding:
    """Return the finding that a form loses at most `bound` more than another of usual sizes."""
    return below(
        f"loss of {form} minus {base}, mean of {', '.join(kinds)}",
        losses(form, kinds, **sizes) - losses(base, kinds),
        SAMPLES,
        bound,
        "nats per token",
    )


def better(form: str, base: str = SOFTMAX) -> Finding:
    """Return the finding that a form loses less than another."""
    return no_worse(form, base, bound=0.0)
