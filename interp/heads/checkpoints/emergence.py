"""Emergence of heads and of learned gates over the checkpoints of a run, on the same prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.causal.gating.result import LearnedGates
from interp.core.annotated import value_in_words
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.protocols import silent
from interp.core.table import HeadTable
from interp.heads.between_models.measured import (
    PairableScores,
    head_values,
    of_table,
    require_paired,
)
from interp.heads.between_models.shared_prompts import SharedPrompts
from interp.heads.checkpoints.change_points import changes
from interp.heads.checkpoints.result import Emergence
from interp.heads.checkpoints.steps import checkpoints_of, in_step_order, training_step
from interp.model.content import model_provenance, versions
from interp.model.precision import float64_or_less

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.heads.scoring import Metric
    from interp.model.model import Model

METRICS = ("previous_token", "induction", "first_token")
"""Metrics of the curves where none is named."""


def emergence(
    models: Any,
    metrics: Metric | Iterable[Metric] | None = None,
    prompts: Any = None,
    *,
    steps: Sequence[int] | None = None,
    revisions: Sequence[str] | None = None,
    seed: int = 0,
    batch_size: int = 16,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Emergence:
    """Score every head at the checkpoints of a run, and find the steps where scores change.

    All checkpoints read the same prompts and are loaded one after another. Changes are found in
    each head's curve by binary segmentation; see `interp.heads.checkpoints.change_points`.

    Args:
        models: a folder of checkpoints, "bundled:induction", a list of checkpoints (anything that
            `interp.load` accepts), or with `revisions` a hub id.
        metrics: as in `interp.score`; by default `METRICS`.
        prompts: as in `interp.score`.
        steps: training step of each listed checkpoint; by default read from `trainer_state.json` or
            the name.
        revisions: revisions of the hub id `models`, such as "step1000".
        seed: seed of default prompts and experiments.
        batch_size: prompts per forward pass.
        engine: as in `interp.score`.
        progress: see `Progress`.

    Raises:
        OptionError: the steps are unknown, equal or fewer than two, the checkpoints have different
            heads, or a metric does not apply.
        PromptError: the checkpoints do not read the same tokens.
        LoadError: a checkpoint cannot be loaded.
    """
    from interp.model.load import load
    from interp.model.model_argument import given_models

    def loaded(source: Any) -> Model:
        if revisions is not None:
            return load(str(models), revision=source, name=f"{models}@{source}")
        return given_models(source)[0].model()

    return emergence_of(
        loaded,
        models,
        metrics,
        prompts,
        steps=steps,
        revisions=revisions,
        seed=seed,
        batch_size=batch_size,
        engine=engine,
        progress=progress,
    )


def emergence_of(
    load: Callable[[Any], Model],
    models: Any,
    metrics: Metric | Iterable[Metric] | None = None,
    prompts: Any = None,
    *,
    steps: Sequence[int] | None = None,
    revisions: Sequence[str] | None = None,
    seed: int = 0,
    batch_size: int = 16,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Emergence:
    """Score every head at checkpoints as `emergence` does, each loaded by a function.

    The function gets a checkpoint of `models`, or one of the `revisions`.
    """
    from interp.heads.scoring import asked_metrics, why_not

    bounds = asked_metrics(METRICS if metrics is None else metrics) or []
    shared = SharedPrompts(list(prompts) if hasattr(prompts, "__next__") else prompts, seed)
    progress = progress or silent
    listed = _listed(models, steps, revisions)
    scores: list[dict[str, PairableScores]] = []
    provenances = []
    for at, (step, source) in enumerate(listed):
        progress("checkpoints", at, len(listed))
        model = load(source)
        for bound in bounds:
            reason = why_not(model, bound)
            if reason is not None:
                raise OptionError(reason)
        with float64_or_less(model.device):
            each = head_values(
                model,
                bounds,
                shared,
                batch_size=batch_size,
                engine=engine,
                seed=seed,
                progress=None,
            )
        scores.append(each)
        provenances.append(model_provenance(model) | {"step": step})
    progress("checkpoints", len(listed), len(listed))
    name = str(models) if isinstance(models, (str, Path)) else provenances[-1]["model_id"]
    about = {
        "model": name,
        "checkpoints": provenances,
        "prompts": shared.design,
        "prompts_hash": shared.hash,
        "seed": seed,
        "versions": versions(),
        "made_by": "interp.heads.emergence",
    }
    return curves_of([step for step, _ in listed], scores, about)


def emergence_of_table(table: HeadTable, steps: Mapping[str, int]) -> Emergence:
    """Return the curves of a table that holds every checkpoint as a model."""
    names = sorted(steps, key=lambda name: steps[name])
    metrics = [
        m
        for m in table.metrics
        if all(m in table.where(model=n).metrics for n in names)
        and all(x.get("engine") != "weights" for (_, k), x in table.provenance.items() if k == m)
    ]
    scores = [{m: of_table(table.where(model=n, metric=m), m) for m in metrics} for n in names]
    stated = [x.made.get("prompts_hash") for each in scores for x in each.values()]
    hashes = {str(each) for each in stated if each}
    if len(hashes) > 1 or not metrics:
        raise OptionError(
            "the checkpoints of the table were not measured on the same prompts; use interp "
            "emergence, which gives them the same"
        )
    about = {"model": names[-1], "checkpoints": dict(steps), "prompts_hash": "".join(hashes)}
    about |= {"versions": versions(), "made_by": "interp.heads.emergence"}
    return curves_of([steps[name] for name in names], scores, about)


def _listed(
    models: Any, steps: Sequence[int] | None, revisions: Sequence[str] | None
) -> list[tuple[int, Any]]:
    """Return step and source of every checkpoint, in order."""
    if revisions is not None:
        if not isinstance(models, str):
            raise OptionError("revisions= are those of one hub id; give its name as the model")
        sources: list[Any] = list(revisions)
    elif isinstance(models, (str, Path)):
        if steps is not None:
            raise OptionError("steps= are those of a list of checkpoints; a folder states its own")
        return list(checkpoints_of(models))
    elif isinstance(models, Iterable):
        sources = list(models)
    else:
        raise OptionError(
            f"{value_in_words(models)} is not a run; give a folder or a list of checkpoints"
        )
    if steps is None:
        texts = [x if isinstance(x, (str, Path)) else getattr(x, "name", "") for x in sources]
        read = [training_step(text) for text in texts]
        unknown = [str(t) for t, s in zip(texts, read, strict=True) if s is None]
        if unknown:
            raise OptionError(
                f"the training step of {', '.join(unknown[:3]) or 'the checkpoints'} is unknown; "
                "give steps=[...], one per checkpoint, or names such as checkpoint-500"
            )
        steps = [s for s in read if s is not None]
    if len(steps) != len(sources):
        raise OptionError(f"{len(steps)} steps for {len(sources)} checkpoints; give one for each")
    where = [(int(step), str(i)) for i, step in enumerate(steps)]
    return [(step, sources[int(i)]) for step, i in in_step_order(where, "the list")]


def curves_of(
    steps: Sequence[int], found: Sequence[Mapping[str, PairableScores]], about: Mapping[str, Any]
) -> Emergence:
    """Return the result for measured checkpoints, in order of their steps."""
    rows, values, changed, labels = [], [], [], {}
    for metric, first in found[0].items():
        labels[metric] = first.clusters
        for step, each in zip(steps, found, strict=True):
            if each[metric].shape() != first.shape():
                raise OptionError(
                    f"the checkpoint of step {step} has other heads than that of step {steps[0]}; "
                    "a curve follows a head through one run"
                )
            require_paired(f"step {step}", first, each[metric], metric)
        for (stack, layer), x in first.sites.items():
            for h in range(x.shape[1]):
                curve = np.stack([each[metric].sites[stack, layer][:, h] for each in found])
                named = {"stack": stack, "layer": layer, "head": h, "metric": metric}
                for step, scores in zip(steps, curve, strict=True):
                    rows.append(named | {"step": step, "unit": first.unit})
                    values.append(scores)
                valid: np.ndarray = np.logical_not(np.isnan(curve).any(axis=0))
                if first.exact or valid.sum() < 2:
                    continue
                clusters = first.clusters
                if clusters is not None:
                    clusters = tuple(c for c, v in zip(clusters, valid, strict=True) if v)
                for change in changes(curve[:, valid], clusters):
                    changed.append(
                        named
                        | {
                            "after": steps[change.at - 1],
                            "until": steps[change.at],
                            "low": steps[change.low - 1],
                            "high": steps[change.high],
                            "size": change.size,
                            "explained": change.explained,
                            "p": change.p,
                        }
                    )
    longest = max((len(x) for x in values), default=0)
    padded = [np.pad(x, (0, longest - len(x)), constant_values=np.nan) for x in values]
    return Emergence(tuple(rows), np.stack(padded), labels, tuple(changed), dict(about))


def emergence_of_gates(gates: Mapping[int, LearnedGates]) -> Emergence:
    """Return the curve of every head's gate over training steps.

    Values are per restart instead of per prompt: restarts have the same seeds at every checkpoint,
    so they are paired. Intervals and change points therefore state the variation over restarts.
    """
    steps = sorted(gates)
    if len(steps) < 2:
        raise OptionError("curves of gates need at least two checkpoints")
    first = gates[steps[0]]
    scores = []
    for step in steps:
        one = gates[step]
        for key in ("prompts_hash", "method", "penalty", "cost", "seed", "kind", "mlps"):
            if one.provenance.get(key) != first.provenance.get(key):
                raise OptionError(
                    f"the gates of step {step} differ from those of step {steps[0]} in {key}; fit "
                    "all with the same task and settings"
                )
        scores.append({f"gate_{one.method}": _scores(one)})
    hashes = {str(step): gates[step].provenance.get("content_hash") for step in steps}
    about = {
        "model": first.provenance.get("model_id"),
        "checkpoints": hashes,
        "method": first.method,
        "task": first.provenance.get("task"),
        "prompts_hash": first.provenance.get("prompts_hash"),
        "values": "one per restart",
        "versions": versions(),
        "made_by": "interp importance gates",
    }
    return curves_of(steps, scores, about)


def _scores(gates: LearnedGates) -> PairableScores:
    places: dict[tuple[str, int], list[int]] = {}
    for at, heads in enumerate(gates.heads_of):
        if len(heads) != 1:
            raise OptionError(
                "curves over checkpoints follow single heads; fit gates with players='heads' and "
                "mlps='none'"
            )
        head = Head.parse(heads[0])
        places.setdefault((head.stack or "decoder", head.layer), []).append(at)
    sites: dict[tuple[str, int], np.ndarray] = {k: gates.gate[:, at] for k, at in places.items()}
    return PairableScores(sites, None, False, "gate", gates.provenance)
