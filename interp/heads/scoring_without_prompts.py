"""Scores of metrics that need no prompts: from weights, and from experiments."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from interp.core.errors import InterpError, OptionError, PromptError
from interp.core.protocols import Progress
from interp.core.table import HeadTable
from interp.heads.declaration import BoundAnalysis, Null
from interp.heads.score_rows import MetricScores, means_by_site, table_of
from interp.model.calls.sites import Site, softmax_sites
from interp.model.identity import tokenizer_hash
from interp.model.random_weights import DrawMeans, RandomWeights, streams_found

if TYPE_CHECKING:
    from interp.model.model import Model


@dataclass
class WeightsScores:
    """Scores of weights of every head, with random weights as the null.

    One draw of random weights serves all metrics, so `draws` is found once, either here or with the
    draws of other metrics.
    """

    model: Model
    metrics: Sequence[BoundAnalysis]
    null: Null
    seed: int
    random: RandomWeights
    progress: Progress
    origin: Mapping[str, Any]
    draws: Mapping[str, list[DrawMeans]] | None = None
    _failed: dict[str, InterpError] = field(default_factory=dict)

    @property
    def _held(self) -> bool:
        return self.null in ("auto", "random-init")  # weights do not read tokens

    def asked(self) -> dict[str, dict[str, Any]]:
        """Return the identity of the scores by label; none if there is no null."""
        if not self._held:
            return {}
        about = {"streams": streams_found(self.model)} if self.metrics else {}
        return {b.label: b.identity() | about for b in self.metrics}

    def on_draw(self, model: Model, labels: Sequence[str], what: str) -> dict[str, DrawMeans]:
        """Score one draw; a metric that cannot be scored on it raises in `table`, in its turn."""
        means: dict[str, DrawMeans] = {}
        mine = [b for b in self.metrics if b.label in labels]
        for done, metric in enumerate(mine):
            self.progress(f"{what}, {metric.label}", done, len(mine))
            try:
                means[metric.label] = means_by_site(_exact(metric.from_weights(model)))
            except InterpError as error:
                self._failed[metric.label] = error
            self.progress(f"{what}, {metric.label}", len(mine), len(mine))
        return means

    def table(self, metric: BoundAnalysis) -> HeadTable:
        """Return the table of one metric; raises InterpError if a draw could not be scored."""
        self.progress(metric.label, 0, 1)
        values = _exact(metric.from_weights(self.model))
        self.progress(metric.label, 1, 1)
        if self.draws is None:
            self.draws = self.random.scores(self.asked(), self.on_draw)
        if metric.label in self._failed:
            raise self._failed[metric.label]
        kind = "random-init" if self._held else "none"
        about = {"prompts": "none: weights only", "seed": self.seed, "engine": "weights"}
        scores = MetricScores(values, None, kind, None, self.draws.get(metric.label, ()))
        return table_of(self.model, metric, scores, self.origin, about)


def lacks(model: Model, metric: BoundAnalysis) -> str | None:
    """Return the reason why the model lacks what an experiment needs, or None."""
    missing = {
        "tokens": None if model.takes_text else "does not read tokens",
        "causal": None if model.kind == "causal" else f"is {model.kind}, not causal",
        "tokenizer": "has no tokenizer" if model.tokenizer is None else None,
    }
    why = next((missing[x] for x in metric.analysis.requires if missing[x]), None)
    if why is None and not softmax_sites(model.sites):
        maps = model.sites[0]
        why = f"has heads that are not one softmax ({maps.name}: {maps.kind}), which it cannot read"
    return None if why is None else f"{metric.label}: {model.name} {why}"


def from_experiment(
    model: Model,
    metric: BoundAnalysis,
    null: Null,
    seed: int,
    random: RandomWeights,
    progress: Progress,
    origin: Mapping[str, Any],
    parts: bool,
) -> HeadTable:
    """Run an experiment, and repeat it on its null."""
    if null == "shuffled-tokens":
        raise OptionError(
            f"{metric.label} makes its own prompts, so tokens cannot be shuffled; use null auto, "
            f"random-init or none"
        )
    trials = metric.experiment(model, seed, progress)
    if not any(bool(x.isfinite().any()) for x in trials.values.values()):
        null = "none"  # there is no score to compare, as where a model cannot do the task
    kind, beside = "none", None
    draws: Sequence[DrawMeans] = ()
    if null == "auto" and trials.null is not None:
        kind, beside = trials.null_kind, _arrays(trials.null)
    elif null != "none":
        kind = "random-init"
    settled = metric.settled(trials.settled)  # the null uses the task of the scores

    def on_draw(model: Model, labels: Sequence[str], what: str) -> dict[str, DrawMeans]:
        try:
            other = settled.experiment(model, seed, progress, notes=False)
        except PromptError:  # an experiment that cannot run on random weights has no score there
            if beside is None:
                raise
            return {}
        return {metric.label: means_by_site(_arrays(other.values))}

    if null != "none":
        about = settled.identity() | {
            "tokenizer": tokenizer_hash(model.tokenizer),
            "streams": streams_found(model),
        }
        keep = not any(_is_file(value) for value in settled.options.values())
        draws = random.scores({metric.label: about}, on_draw, keep=keep)[metric.label]
    about = {"prompts": "its own", "seed": seed, "engine": "experiment"}
    about |= {"notes": [f"{k}: {v}" for k, v in trials.notes.items()]}
    about |= {"headline": trials.headline} if trials.headline else {}
    about |= {"settled": dict(trials.settled)} if trials.settled else {}
    values = _arrays(trials.values)
    ids = _trial_ids(model, settled, seed, len(next(iter(values.values()), ())))
    scores = MetricScores(values, trials.clusters, kind, beside, draws, ids)
    return table_of(model, metric, scores, origin, about, parts=parts)


def _is_file(value: Any) -> bool:
    """Return True for the name of a file, whose content may change under its name."""
    return isinstance(value, (str, Path)) and Path(value).is_file()


def _trial_ids(model: Model, metric: BoundAnalysis, seed: int, n: int) -> tuple[str, ...]:
    """Return the identity of each trial: what the prompts of an experiment are made from."""
    identity = f"{metric.label} {dict(metric.options)!r} {seed} {model.d_vocab}"
    return tuple(hashlib.sha256(f"{identity} {i}".encode()).hexdigest()[:16] for i in range(n))


def _arrays(values: Mapping[Site, Tensor]) -> dict[Site, np.ndarray]:
    return {site: x.detach().double().cpu().numpy() for site, x in values.items()}


def _exact(values: Mapping[Site, Tensor]) -> dict[Site, np.ndarray]:
    """Return exact values as a single trial."""
    return {site: x[None] for site, x in _arrays(values).items()}
