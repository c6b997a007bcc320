"""Curves of training: the loss of a form after three budgets, each at the best of three rates.

Every run is kept in a file of a folder of the user's, so that a curve that was stopped goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from interp.core.files import write_atomically
from papers.beside import KINDS, ROWS, SOFTMAX
from papers.finding import Worded, interval
from papers.fitting import fit, parallel, rules
from training import alike, forms

STEPS = (200, 600, 1800)
RATES = (alike.RATE / 2, alike.RATE, alike.RATE * 2)
CHOSEN, JUDGED = 98, 99  # seeds of the held-out rows on which rates are chosen, and judged
SEEDS = alike.SEEDS
STABLE = 0.05  # nats per token: the largest change of a gap that is called stable
KEPT = Path.home() / "interp-paper-claims" / "curves"


class Run(NamedTuple):
    """Losses of one training in nats per token, and its processor time."""

    chosen: float  # on the rows on which the rate of learning is chosen
    judged: float  # on other rows
    seconds: float


def run(form: str, seed: int, steps: int, rate: float) -> Run:
    """Return the losses of a form that is trained as `alike.train` does, or was before."""
    name = f"{form}-{seed}-{steps}-{rate:g}-{alike.settings(form)}"
    file = KEPT / f"{name}.json"
    if not file.exists():
        start = time.process_time()
        model = _trained(form, seed, steps, rate)
        alike.NOW[name] = round(time.process_time() - start, 2)
        found = Run(_loss(model, CHOSEN), _loss(model, JUDGED), alike.NOW[name])
        KEPT.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(found).encode())
    found = Run(*json.loads(file.read_text(encoding="utf-8")))
    alike.TRAINING[name] = found.seconds
    return found


def _trained(form: str, seed: int, steps: int, rate: float) -> Any:
    model = forms.build(form, seed=seed, gain=1.0, **alike.SIZES)
    for rule in rules(model):
        parallel(rule)
    fit(model, lambda rng: alike.step_loss(model, rng), steps=steps, seed=seed, rate=rate)
    return model


@torch.no_grad()
def _loss(model: Any, seed: int) -> float:
    asked = [alike.asked_rows(model.config.variant, kind, ROWS, seed) for kind in KINDS]
    return float(np.mean([alike.mean_loss(model(rows.given).logits, rows) for rows in asked]))


def losses(form: str) -> np.ndarray:
    """Return the judged losses `[budget, seed]`, each budget at the rate that loses least."""
    for seed in SEEDS:  # all runs of a seed first: a curve that was stopped has whole seeds
        for steps in STEPS:
            for rate in RATES:
                run(form, seed, steps, rate)
    best = []
    for steps in STEPS:
        each = [[run(form, seed, steps, rate) for seed in SEEDS] for rate in RATES]
        least = min(each, key=lambda runs: float(np.mean([x.chosen for x in runs])))
        best.append([x.judged for x in least])
    return np.array(best)


def trend(gaps: np.ndarray) -> str:
    """Return how a gap `[budget, seed]` changes from the least budget to the largest.

    It is stable where the 95 % interval of its change lies within `STABLE`.
    """
    sign = 1 if gaps[0].mean() > 0 else -1
    change = interval(sign * (gaps[-1] - gaps[0]))
    if change.high < 0:
        return "closing"
    if change.low > 0:
        return "widening"
    return "stable" if max(-change.low, change.high) < STABLE else "of unclear trend"


def in_range(form: str, base: str = SOFTMAX) -> Iterator[Worded]:
    """Yield the gap of a form after each budget; that after the largest one decides."""
    own, other = losses(form), losses(base)
    for steps, a, b in zip(STEPS, own, other, strict=True):
        what = (
            f"loss of {form} ({a.mean():.2f}) minus {base} ({b.mean():.2f}) after {steps:,} steps"
        )
        if decides := steps == STEPS[-1]:
            what += f", a gap that is {trend(own - other)}"
        yield Worded(a - b, {"what": what, "decides": decides})
