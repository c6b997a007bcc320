"""Comparison of the scores of two models, or of groups of models, on the same prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.protocols import Progress
from interp.core.table import HeadTable
from interp.heads.between_models.changed_patterns import HeadPair, changed_patterns
from interp.heads.between_models.measured import (
    PairableScores,
    head_values,
    of_table,
    require_paired,
)
from interp.heads.between_models.result import ModelDifferences
from interp.heads.between_models.shared_prompts import SharedPrompts, vocabulary_of
from interp.model.content import model_provenance, versions

if TYPE_CHECKING:
    from interp.heads.declaration import BoundAnalysis
    from interp.heads.scoring import Metric
    from interp.model.model import Model

METRICS = ("previous_token", "induction", "duplicate_token", "first_token", "entropy")
"""Metrics of a comparison that names none."""
RESOLUTION = 1e-5
"""Differences up to this share of a metric's largest score count as rounding, and become 0."""


@dataclass
class _Run:
    """One model of a comparison with its scores; `model` is released where it is not needed."""

    name: str
    scores: dict[str, PairableScores]
    model: Model | None
    made: Mapping[str, Any]


def compare(
    a: Any,
    b: Any,
    metrics: Metric | Iterable[Metric] | None = None,
    prompts: Any = None,
    *,
    match: str | None = None,
    paired: bool = False,
    top: int = 3,
    seed: int = 0,
    batch_size: int = 16,
    engine: str = "auto",
    progress: Progress | None = None,
) -> ModelDifferences:
    """Compute the paired difference of every head's score between two models, B minus A.

    Both models read the same prompts, so the variation between prompts cancels. Intervals are over
    clusters of prompts, chosen by the kind of values (`interp.core.intervals.mean_intervals`); p is
    a t test over them, corrected over all rows by Holm's and by Benjamini and Hochberg's method.

    A list of models on either side is a group, such as training runs with different seeds: scores
    are averaged over the group, and the variation between its models is a second part of the
    standard error, so that a finding is one about such runs and not about these ones.

    Args:
        a: a model, anything that `interp.load` accepts, a table of scores with values per prompt,
            or a list of these.
        b: the other side, in the same forms.
        metrics: as in `interp.score`; by default `METRICS`.
        prompts: as in `interp.score`. Texts are split by each model's own tokenizer, and paired by
            text; token ids are accepted only if they mean the same to all models.
        match: pair heads by similarity instead of by position, "patterns", "ov" or "qk", for runs
            whose head order differs; see `interp.match_heads`. Heads are matched on other prompts
            than those that are compared.
        paired: the models of the two groups correspond in order, such as runs before and after
            fine-tuning.
        top: number of heads per metric whose changed patterns are reported; 0 for none.
        seed: seed of default prompts and experiments.
        batch_size: prompts per forward pass.
        engine: as in `interp.score`.
        progress: see `Progress`.

    Raises:
        OptionError: the heads of the models do not correspond, a metric does not apply to one of
            them, or values cannot be paired.
        PromptError: the prompts are not the same for all models.
    """
    sides = [_side(a), _side(b)]
    if paired and len(sides[0]) != len(sides[1]):
        raise OptionError(
            f"paired=True needs as many models on both sides, not {len(sides[0])} and "
            f"{len(sides[1])}"
        )
    shared = SharedPrompts(_listed(prompts), seed, same_tokens=match == "patterns")
    tell = progress or (lambda what, done, total: None)
    runs: list[list[_Run]] = []
    options = {"batch_size": batch_size, "engine": engine, "seed": seed}
    vocabulary: list[Any] = []
    for side in sides:
        runs.append([])
        for each in side:
            keep = not runs[-1] and top > 0
            runs[-1].append(_run(each, metrics, shared, keep, vocabulary, tell, options))
    head_b = _matched(sides, runs, match, seed) if match is not None else None
    _require_same_heads(runs, head_b is not None)
    found = _differences(runs, paired, head_b)
    names = [", ".join(run.name for run in side) for side in runs]
    first = next(iter(runs[0][0].scores.values()))
    found = replace(
        found,
        provenance={
            "model": f"{names[1]} - {names[0]}", "a": [dict(r.made) for r in runs[0]],
            "b": [dict(r.made) for r in runs[1]],
            "prompts": shared.design or str(first.made.get("prompts", "")),
            "prompts_hash": shared.hash or str(first.made.get("prompts_hash", "")),
            "tokens": "split by each model's tokenizer" if shared.by_text else "the same",
            "heads": f"matched by {match}" if match else "same layer and index",
            "paired": paired, "seed": seed, "correction": "all rows of the result",
            "resolution": RESOLUTION, "versions": versions(), "made_by": "interp.compare",
        },
    )  # fmt: skip
    return replace(found, patterns=_patterns(found, runs, shared, top))


def paired_differences(
    a: Sequence[Mapping[str, PairableScores]],
    b: Sequence[Mapping[str, PairableScores]],
    *,
    paired: bool = False,
) -> ModelDifferences:
    """Compute the differences between two groups of models from their measured scores.

    Args:
        a: scores by metric, of each model of the first group.
        b: the same, of the second group, on the same prompts.
        paired: the models of the groups correspond in order.

    Raises:
        OptionError: heads or prompts do not correspond.
    """
    runs = [[_Run(f"model {i}", dict(x), None, {}) for i, x in enumerate(s)] for s in (a, b)]
    _require_same_heads(runs, matched=False)
    return _differences(runs, paired, None)


def _listed(prompts: Any) -> Any:
    # an iterator would be empty for the second model
    return list(prompts) if hasattr(prompts, "__next__") else prompts


def _side(given: Any) -> list[Any]:
    from interp.model.given import given_models

    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    if not listed:
        raise OptionError("a side of the comparison has no model; give at least one")
    return [x if isinstance(x, HeadTable) else given_models(x)[0] for x in listed]


def _run(
    given: Any,
    metrics: Any,
    shared: SharedPrompts,
    keep: bool,
    vocabulary: list[Any],
    tell: Progress,
    options: Mapping[str, Any],
) -> _Run:
    from interp.heads.scoring import asked_metrics, why_not

    bounds = asked_metrics(METRICS if metrics is None else metrics) or []
    if not bounds:
        raise OptionError("no metric is named; give at least one to compare")
    if isinstance(given, HeadTable):
        labels = given.metrics if metrics is None else [b.label for b in bounds]
        scores = {label: of_table(given, label) for label in labels}
        return _Run(given.models[0], scores, None, next(iter(scores.values())).made)
    model = given.model()
    for bound in bounds:
        reason = why_not(model, bound)
        if reason is not None:
            raise OptionError(reason)
    if any(b.analysis.kind == "experiment" for b in bounds):
        _require_same_vocabulary(model, bounds, vocabulary)
    scores = head_values(model, bounds, shared, progress=tell, **options)
    return _Run(model.name, scores, model if keep else None, model_provenance(model))


def _require_same_vocabulary(
    model: Model, bounds: Sequence[BoundAnalysis], known: list[Any]
) -> None:
    known.append(vocabulary_of(model))
    if known[0] != known[-1]:
        label = next(b.label for b in bounds if b.analysis.kind == "experiment")
        raise OptionError(
            f"{label} makes prompts of token ids, and {model.name} has another vocabulary than the "
            "first model, so their prompts differ; compare other metrics, on texts"
        )


def _require_same_heads(runs: Sequence[Sequence[_Run]], matched: bool) -> None:
    """Raise unless all models have the same heads and every metric of the first."""
    reference = runs[0][0]
    for run in (run for side in runs for run in side):
        for metric, first in reference.scores.items():
            if metric not in run.scores:
                raise OptionError(f"{run.name} has no scores of {metric}, so it cannot be compared")
            other = run.scores[metric]
            if first.made.get("prompts_hash") != other.made.get("prompts_hash") and None in (
                reference.made.get("content_hash"), run.made.get("content_hash")
            ):  # fmt: skip
                raise OptionError(f"{metric} of {run.name} was measured on other prompts")
            if not matched and first.shape() != other.shape():
                raise OptionError(
                    f"{reference.name} has {_shape(first)} and {run.name} {_shape(other)}; heads "
                    "are compared one by one only between models of one shape. Use "
                    "interp.match_heads (interp match), or match='patterns' to pair similar heads"
                )
            require_paired(run.name, first, other, metric)


def _shape(found: PairableScores) -> str:
    counts = list(found.shape().values())
    return f"{len(counts)} layers of {'/'.join(map(str, sorted(set(counts))))} heads"


def _matched(
    sides: Sequence[Sequence[Any]], runs: Sequence[Sequence[_Run]], by: str, seed: int
) -> dict[int, dict[tuple[str, int, int], Head]]:
    """Return the heads of each model but the first that match those of the first, by run."""
    from interp.heads.between_models.match import match_heads

    every = [x for side in sides for x in side]
    if any(isinstance(x, HeadTable) for x in every):
        raise OptionError("match= needs models; tables of scores hold no patterns and no weights")
    first = every[0].model()
    order = [run for side in runs for run in side]
    out = {}
    for given, run in zip(every[1:], order[1:], strict=True):
        pairs = match_heads(first, given.model(), by=by, seed=seed + 1, n_null=0)
        out[id(run)] = pairs.heads_of_b()
    return out


def _values(run: _Run, metric: str, key: tuple[str, int], heads: Any) -> np.ndarray:
    """Return `[prompt, head]` of one attention, in the order of the heads of the first model."""
    found = run.scores[metric]
    if heads is None or id(run) not in heads:
        return found.sites[key]
    stack, layer = key
    n = max((h + 1 for s, x, h in heads[id(run)] if (s, x) == key), default=0)
    rows = next(iter(found.sites.values())).shape[0]
    out = np.full((rows, n), np.nan)
    for h in range(n):
        there = heads[id(run)].get((stack, layer, h))
        if there is not None:
            out[:, h] = found.sites[stack, there.layer][:, there.head]
    return out


def _differences(runs: Sequence[Sequence[_Run]], paired: bool, heads: Any) -> ModelDifferences:
    rows, values, labels = [], [], {}
    reference = runs[0][0]
    for metric, first in reference.scores.items():
        labels[metric] = first.clusters
        scale = max(float(np.nanmax(np.abs(x), initial=0.0)) for x in first.sites.values())
        for (stack, layer), x in first.sites.items():
            sides = []
            for side in runs:
                each = [_values(run, metric, (stack, layer), heads) for run in side]
                width = x.shape[1]
                sides.append(np.stack([_widened(e, width) for e in each]))
            for h in range(x.shape[1]):
                a, b = sides[0][..., h], sides[1][..., h]  # [model, prompt]
                gap = b.mean(0) - a.mean(0)
                if np.isnan(gap).all():
                    continue  # a head without a match
                if np.nanmax(np.abs(gap)) <= RESOLUTION * scale:
                    gap = np.where(np.isnan(gap), gap, 0.0)
                row = {"stack": stack, "layer": layer, "head": h, "metric": metric}
                row |= {"unit": first.unit} | _summary(a, b, gap, paired)
                if heads is not None and len(runs[1]) == 1:
                    row["head_b"] = str(heads[id(runs[1][0])][stack, layer, h])
                rows.append(row)
                values.append(np.full_like(gap, np.nan) if first.exact else gap)
    longest = max((len(x) for x in values), default=0)
    padded = [np.pad(x, (0, longest - len(x)), constant_values=np.nan) for x in values]
    return ModelDifferences(tuple(rows), np.stack(padded), labels)


def _widened(x: np.ndarray, width: int) -> np.ndarray:
    """Return the columns of the first model's heads; those without a match are NaN."""
    return np.pad(x, ((0, 0), (0, width - x.shape[1])), constant_values=np.nan)


def _summary(a: np.ndarray, b: np.ndarray, gap: np.ndarray, paired: bool) -> dict[str, Any]:
    """Return both scores, and the variation between the models of each group."""
    there = ~np.isnan(gap)
    per_a, per_b = a[:, there].mean(1), b[:, there].mean(1)
    score_a = float(per_a.mean())
    row: dict[str, Any] = {"score_a": score_a, "score_b": score_a + float(gap[there].mean())}
    for side, means in (("a", per_a), ("b", per_b)):
        row |= {f"n_{side}": len(means)}
        row |= {f"spread_{side}": float(means.std(ddof=1)) if len(means) > 1 else float("nan")}
    both = per_b - per_a if paired and len(per_a) > 1 else None
    row["n_paired"] = 0 if both is None else len(both)
    row["spread_paired"] = float("nan") if both is None else float(both.std(ddof=1))
    return row


def _patterns(
    found: ModelDifferences, runs: Sequence[Sequence[_Run]], shared: SharedPrompts, top: int
) -> tuple[dict[str, Any], ...]:
    """Return the places of the largest changes, where both models read the same tokens."""
    first, second = runs[0][0].model, runs[1][0].model
    if first is None or second is None or shared.by_text or not shared.hash:
        return ()
    if any(m.elsewhere is not None or m.ranks is not None for m in (first, second)):
        return ()
    pairs: dict[HeadPair, None] = {}
    for metric in found.metrics:
        for row in found[metric].top(top).to_pandas().to_dict("records"):
            a = Head(int(row["layer"]), int(row["head"]))
            b = Head.parse(row["head_b"]) if "head_b" in row else a
            if row["score"] != 0:
                pairs[(str(row["stack"]), a, b)] = None
    return changed_patterns(first, second, shared.of(first), list(pairs))
