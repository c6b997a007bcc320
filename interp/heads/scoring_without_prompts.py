"""Scores of metrics that need no prompts: from weights, and from experiments."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.table import HeadTable
from interp.heads.declaration import BoundAnalysis, Null, Tell
from interp.heads.score_rows import MetricScores, means_by_site, table_of
from interp.model.locate.sites import Site
from interp.model.random_weights import RandomWeights

if TYPE_CHECKING:
    from interp.model.model import Model


def from_weights(
    model: Model,
    metric: BoundAnalysis,
    null: Null,
    seed: int,
    random: RandomWeights,
    tell: Tell,
    origin: Mapping[str, Any],
) -> HeadTable:
    """Score the weights of every head, with random weights as the null."""
    held = null in ("auto", "random-init")  # weights do not read tokens
    total = 1 + len(random) * held
    tell(metric.label, 0, total)
    values, draws = _exact(metric.from_weights(model)), []
    tell(metric.label, 1, total)
    for drawn in random if held else ():
        draws.append(means_by_site(_exact(metric.from_weights(drawn))))
        tell(metric.label, 1 + len(draws), total)
    about = {"prompts": "none: weights only", "seed": seed, "engine": "weights"}
    found = MetricScores(values, None, "random-init" if held else "none", None, draws)
    return table_of(model, metric, found, origin, about)


def from_experiment(
    model: Model,
    metric: BoundAnalysis,
    null: Null,
    seed: int,
    random: RandomWeights,
    tell: Tell,
    origin: Mapping[str, Any],
    parts: bool,
) -> HeadTable:
    """Run an experiment, and repeat it on its null.

    Raises:
        OptionError: shuffled tokens are the null, but an experiment makes its own prompts.
        PromptError: the experiment cannot run on random weights, and they are the only null.
    """
    if null == "shuffled-tokens":
        raise OptionError(
            f"{metric.label} makes its own prompts, so tokens cannot be shuffled; use null auto, "
            f"random-init or none"
        )
    trials = metric.experiment(model, seed, tell)
    kind, beside, draws = "none", None, []
    if null == "auto" and trials.null is not None:
        kind, beside = trials.null_kind, _arrays(trials.null)
    elif null != "none":
        kind = "random-init"
    settled = metric.settled(trials.settled)  # the null uses the task of the scores
    for drawn in random if null != "none" else ():
        try:
            other = settled.experiment(drawn, seed, tell, notes=False)
        except PromptError:  # an experiment that cannot run on random weights has no score there
            if beside is None:
                raise
            break
        draws.append(means_by_site(_arrays(other.values)))
    about = {"prompts": "its own", "seed": seed, "engine": "experiment"}
    about |= {"notes": [f"{k}: {v}" for k, v in trials.notes.items()]}
    about |= {"headline": trials.headline} if trials.headline else {}
    about |= {"settled": dict(trials.settled)} if trials.settled else {}
    values = _arrays(trials.values)
    ids = _trial_ids(model, settled, seed, len(next(iter(values.values()), ())))
    found = MetricScores(values, trials.clusters, kind, beside, draws, ids)
    return table_of(model, metric, found, origin, about, parts=parts)


def _trial_ids(model: Model, metric: BoundAnalysis, seed: int, n: int) -> tuple[str, ...]:
    """Return the identity of each trial: what the prompts of an experiment are made from."""
    made = f"{metric.label} {dict(metric.options)!r} {seed} {model.d_vocab}"
    return tuple(hashlib.sha256(f"{made} {i}".encode()).hexdigest()[:16] for i in range(n))


def _arrays(values: Mapping[Site, Tensor]) -> dict[Site, np.ndarray]:
    return {site: x.detach().double().cpu().numpy() for site, x in values.items()}


def _exact(values: Mapping[Site, Tensor]) -> dict[Site, np.ndarray]:
    """Return exact values as a single trial."""
    return {site: x[None] for site, x in _arrays(values).items()}
