"""Nulls of metrics of patterns: which one a metric has, and its scores on random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.heads.declaration import BoundAnalysis, Null
from interp.heads.pieces import Pieces
from interp.heads.score_rows import PatternRun, means_by_site
from interp.heads.scoring_without_prompts import WeightsScores
from interp.model.random_weights import DrawMeans, DrawnElsewhere, RandomWeights
from interp.model.sources.recorded_run import RecordedModel

if TYPE_CHECKING:
    from interp.model.model import Model


def drawn_scores(
    run: PatternRun,
    random: RandomWeights,
    bounds: Sequence[BoundAnalysis],
    weights: WeightsScores,
    prompts_hash: str,
) -> dict[str, list[DrawMeans]]:
    """Return per metric the mean of every head on every draw of random weights.

    Each draw is made once: what the metrics of weights score on it is found on the way.
    """
    asked = run.asked_draws(bounds, prompts_hash)

    def on_draw(model: Model, labels: list[str], what: str) -> dict[str, DrawMeans]:
        mine = [b for b in bounds if b.label in labels]
        scores = run.of(model, run.prompts, mine, what) if mine else {}
        found = {label: means_by_site(values) for label, values in scores.items()}
        return found | weights.on_draw(model, labels, what)

    if weights.metrics:
        asked |= weights.asked()
    found = random.scores(asked, on_draw)
    weights.draws = found
    return found


def without_draws(
    run: PatternRun, random: RandomWeights, bounds: Sequence[BoundAnalysis]
) -> list[BoundAnalysis]:
    """Return the metrics whose scores on random weights are not kept from earlier."""
    asked = run.asked_draws(bounds, run.about()["prompts_hash"])
    unknown = random.unknown(asked)
    return [b for b in bounds if b.label in unknown]


def drawn_in_pieces(
    run: PatternRun, pieces: Pieces, random: RandomWeights, bounds: Sequence[BoundAnalysis]
) -> RandomWeights:
    """Return draws that are not made where pieces hold all scores on them."""
    short = without_draws(run, random, bounds)
    passes = map(random.pass_name, range(len(random)))
    if any(pieces.whole(what, short, run.model) is None for what in passes):
        return random
    return DrawnElsewhere(random.model, random.seed, random.draws, random.kept)


def null_of(metric: BoundAnalysis, null: Null, model: Model) -> Null:
    """Return the null of a metric on a model."""
    if null != "auto":
        return null
    if isinstance(model, RecordedModel):
        return "none"  # a null needs other prompts, or other weights
    if model.elsewhere is not None and metric.analysis.default_null == "random-init":
        return "none"  # random weights would need the memory of the model on this machine
    return metric.analysis.default_null


def needs_draws(kind: str, null: Null, model: Model) -> bool:
    """Return whether a metric with this kind of null is compared with random weights."""
    return kind == "random-init" or (
        null == "auto" and kind == "shuffled-tokens" and model.elsewhere is None
    )
