"""Forms of attention trained alike, measured beside one another seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from interp.core.literature import Finding
from papers.finding import mean
from training import alike

SOFTMAX = "plain_softmax"
KINDS = tuple(alike.ROWS)
COMPARABLE = 0.05  # nats per token: the largest loss by which a form counts as no worse
ROWS = 64  # held out, of each kind
ALIKE = "trained alike (two layers, four heads; text, copies, recall), 3 seeds"
SAMPLES = f"{len(alike.SEEDS)} seeds, {ROWS} held-out rows of each kind"


def loss(model: Any, kinds: Sequence[str] = KINDS) -> float:
    """Return the mean of the held-out losses of some kinds of rows, in nats per token."""
    total = 0.0
    for kind in kinds:
        rows = alike.asked_rows(model.config.variant, kind, ROWS)
        with torch.no_grad():
            total += float(alike.mean_loss(model(rows.given).logits, rows))
    return total / len(kinds)


def loss_apart(
    form: str, base: str = SOFTMAX, kinds: Sequence[str] = KINDS, **sizes: Any
) -> list[float]:
    """Return per seed the loss of a form less that of another, which has the usual sizes."""
    return [
        loss(alike.trained(form, s, **sizes), kinds) - loss(alike.trained(base, s), kinds)
        for s in alike.SEEDS
    ]


def no_worse(form: str, base: str = SOFTMAX, kinds: Sequence[str] = KINDS, **sizes: Any) -> Finding:
    """Return the finding that a form loses at most `COMPARABLE` more than another."""
    return mean(
        f"loss of {form} less that of {base}, mean of {', '.join(kinds)}",
        loss_apart(form, base, kinds, **sizes), "nats per token", "below", COMPARABLE, SAMPLES,
    )  # fmt: skip


def better(form: str, base: str = SOFTMAX, kinds: Sequence[str] = KINDS, **sizes: Any) -> Finding:
    """Return the finding that a form loses less than another."""
    return mean(
        f"loss of {form} less that of {base}, mean of {', '.join(kinds)}",
        loss_apart(form, base, kinds, **sizes), "nats per token", "below", 0.0, SAMPLES,
    )  # fmt: skip
