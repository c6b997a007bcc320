"""Comparison of the scores of two models, or of groups of models, on the same prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.protocols import Progress, silent
from interp.core.table import HeadTable
from interp.heads.between_models.answer import (
    ComparisonAnswer,
    LossChange,
    head_changes,
    role_changes,
)
from interp.heads.between_models.changed_patterns import HeadPair, changed_patterns
from interp.heads.between_models.measured import of_table
from interp.heads.between_models.paired import (
    RESOLUTION,
    ComparedRun,
    group_differences,
    require_same_heads,
    side_scores,
)
from interp.heads.between_models.result import ModelDifferences
from interp.heads.between_models.shared_prompts import SharedPrompts, vocabulary_of
from interp.heads.roles.decide import roles
from interp.model.content import model_provenance, versions
from interp.model.precision import on_its_device

if TYPE_CHECKING:
    from interp.core.prompts import Prompts
    from interp.heads.declaration import BoundAnalysis
    from interp.heads.scoring import Metric
    from interp.model.model import Model

METRICS = ("previous_token", "induction", "duplicate_token", "first_token", "entropy")
"""Metrics of a comparison that names none."""


@on_its_device
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

    `answer` of the result says what changed: roles gained and lost (of single models), the heads
    that changed most over all metrics, and the next-token loss on the prompts.

    Args:
        a: a model, anything that `interp.load` accepts, a table of scores with values per prompt,
            or a list of these.
        b: the other side, in the same forms.
        metrics: as in `interp.score`; by default `METRICS`.
        prompts: as in `interp.score`. Texts are split by each model's own tokenizer, and paired by
            text; token ids are accepted only if they mean the same to all models.
        match: pair heads by similarity instead of by position, "patterns", "ov" or "qk", for runs
            whose head order differs; see `interp.heads.match_heads`. Heads are matched on other
            prompts than those that are compared, and over all layers if the numbers differ.
        paired: the models of the two groups correspond in order, such as runs before and after
            fine-tuning.
        top: number of heads whose changed patterns are reported, those that changed most over all
            metrics first; 0 for none.
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
    sides = _checked(sides, metrics, shared, match, top)
    progress = progress or silent
    runs: list[list[ComparedRun]] = []
    options = {"batch_size": batch_size, "engine": engine, "seed": seed}
    vocabulary: list[Any] = []
    for side in sides:
        runs.append([])
        for each in side:
            keep = not runs[-1] and top > 0
            alone = len(side) == 1
            runs[-1].append(_run(each, metrics, shared, keep, alone, vocabulary, progress, options))
    head_b = _matched(sides, runs, match, seed) if match is not None else None
    require_same_heads(runs, head_b is not None)
    differences = group_differences(runs, paired, head_b)
    names = [", ".join(run.name for run in side) for side in runs]
    first = next(iter(runs[0][0].scores.values()))
    differences = replace(
        differences,
        provenance={
            "model": f"{names[1]} - {names[0]}",
            "a": [dict(r.made) for r in runs[0]],
            "b": [dict(r.made) for r in runs[1]],
            "prompts": shared.design or str(first.made.get("prompts", "")),
            "prompts_hash": shared.hash or str(first.made.get("prompts_hash", "")),
            "tokens": "split by each model's tokenizer" if shared.by_text else "the same",
            "heads": f"matched by {match}" if match else "same layer and index",
            "paired": paired,
            "seed": seed,
            "correction": "all rows of the result",
            "resolution": RESOLUTION,
            "versions": versions(),
            "made_by": "interp.compare",
        },
    )
    differences = replace(differences, answer=_answer(differences, runs, paired, head_b, shared))
    return replace(differences, patterns=_patterns(differences, runs, shared, top))


def _listed(prompts: Any) -> Any:
    # an iterator would be empty for the second model
    return list(prompts) if hasattr(prompts, "__next__") else prompts


def _side(given: Any) -> list[Any]:
    from interp.model.model_argument import given_models

    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    if not listed:
        raise OptionError("a side of the comparison has no model; give at least one")
    return [x if isinstance(x, HeadTable) else given_models(x)[0] for x in listed]


def _checked(
    sides: Sequence[Sequence[Any]], metrics: Any, shared: SharedPrompts, match: str | None, top: int
) -> list[list[Any]]:
    """Check the first model of each side before any is scored, which may take minutes.

    It stays loaded where its patterns are compared at the end.
    """
    from interp.heads.between_models.similarity import require_one_vocabulary
    from interp.heads.scoring import why_not
    from interp.model.model_argument import Given

    bounds, vocabulary, firsts, out = _bounds(metrics), [], [], []
    for first, *others in sides:
        out.append([first, *others])
        if isinstance(first, HeadTable):
            continue
        model = first.model()
        firsts.append(model)
        for bound in bounds:
            if reason := why_not(model, bound):
                raise OptionError(reason)
        if any(bound.analysis.kind == "experiment" for bound in bounds):
            _require_same_vocabulary(model, bounds, vocabulary)
        if any(bound.patterned() for bound in bounds):
            shared.of(model)
        if top > 0:
            out[-1][0] = Given(model, first.name)
    if match in ("ov", "qk") and len(firsts) == 2:
        require_one_vocabulary(*firsts)
    return out


def _bounds(metrics: Any) -> list[BoundAnalysis]:
    from interp.heads.scoring import asked_metrics

    bounds = asked_metrics(METRICS if metrics is None else metrics) or []
    if not bounds:
        raise OptionError("no metric is named; give at least one to compare")
    return bounds


def _run(
    given: Any,
    metrics: Any,
    shared: SharedPrompts,
    keep: bool,
    alone: bool,
    vocabulary: list[Any],
    progress: Progress,
    options: Mapping[str, Any],
) -> ComparedRun:
    from interp.heads.scoring import score, why_not

    bounds = _bounds(metrics)
    if isinstance(given, HeadTable):
        labels = given.metrics if metrics is None else [b.label for b in bounds]
        scores = {label: of_table(given, label) for label in labels}
        provenance = next(iter(scores.values())).made
        why = "a table of scores holds no logits"
        return ComparedRun(given.models[0], scores, None, provenance, roles(given), why_no_loss=why)
    model = given.model()
    for bound in bounds:
        reason = why_not(model, bound)
        if reason is not None:
            raise OptionError(reason)
    if any(b.analysis.kind == "experiment" for b in bounds):
        _require_same_vocabulary(model, bounds, vocabulary)
    prompts = shared.of(model) if any(b.patterned() for b in bounds) else None
    null = "auto" if alone else "none"  # roles are decided of single models
    table = score(model, bounds, prompts, null=null, progress=progress, **options)
    scores = {label: of_table(table, label) for label in table.metrics}
    why = _why_no_loss(model, prompts)
    loss = prompt_losses(model, prompts) if prompts is not None and not why else None
    return ComparedRun(
        model.name,
        scores,
        model if keep else None,
        model_provenance(model),
        roles(table) if alone else None,
        loss,
        why,
    )


def _why_no_loss(model: Model, prompts: Prompts | None) -> str:
    """Return why a model has no next-token loss on the prompts; empty if it has one."""
    if prompts is None:
        return "no metric reads prompts"
    if model.kind != "causal":
        return f"{model.name} does not predict the next token"
    if model.elsewhere is not None or model.ranks is not None:
        return f"{model.name} does not run in this process alone"
    return "a prompt has no next token" if min(map(len, prompts.ids)) < 2 else ""


def prompt_losses(model: Model, prompts: Prompts) -> Float[np.ndarray, " prompt"]:
    """Return the next-token loss on each prompt, in nats per token."""
    from interp.causal.game.game import Game
    from interp.causal.text_tasks import next_token_task

    return Game(model, next_token_task(model, prompts), check=False).clean.numpy()


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


def _matched(
    sides: Sequence[Sequence[Any]], runs: Sequence[Sequence[ComparedRun]], by: str, seed: int
) -> dict[int, dict[tuple[str, int, int], Head]]:
    """Return the heads of each model but the first that match those of the first, by run."""
    from interp.heads.between_models.match import match_heads

    every = [x for side in sides for x in side]
    if any(isinstance(x, HeadTable) for x in every):
        raise OptionError("match= needs models; tables of scores hold no patterns and no weights")
    first = every[0].model()
    order = [run for side in runs for run in side]
    depths = {len({key for x in run.scores.values() for key in x.shape()}) for run in order}
    within = "layer" if len(depths) == 1 else "model"
    out = {}
    for other, run in zip(every[1:], order[1:], strict=True):
        pairs = match_heads(
            first, other.model(), method=by, within=within, seed=seed + 1, n_random=0
        )
        out[id(run)] = pairs.heads_of_b()
    return out


def _answer(
    found: ModelDifferences,
    runs: Sequence[Sequence[ComparedRun]],
    paired: bool,
    heads: Any,
    shared: SharedPrompts,
) -> ComparisonAnswer:
    """Return roles, heads and losses of both sides."""
    rows, changed, why = found.to_pandas(), (), "roles are decided of single models, not of groups"
    if len(runs[0]) == len(runs[1]) == 1:
        a, b = runs[0][0].roles, runs[1][0].roles
        assert a is not None
        assert b is not None
        why = ""
        if all(x.role is None for x in (*a.assigned, *b.assigned)):
            why = "no compared score has a null by which a role is decided"
        else:
            partners = None if heads is None else heads[id(runs[1][0])]
            changed = role_changes(a, b, rows, partners)
    loss = _loss_change(runs, paired, shared)
    name = runs[1][0].name if len(runs[1]) == 1 else "B"
    missing = {"why_no_roles": why, "why_no_loss": loss if isinstance(loss, str) else ""}
    n = len(rows[["stack", "layer", "head"]].drop_duplicates())
    return ComparisonAnswer(
        name, changed, head_changes(rows), n, None if isinstance(loss, str) else loss, **missing
    )


def _loss_change(
    runs: Sequence[Sequence[ComparedRun]], paired: bool, shared: SharedPrompts
) -> LossChange | str:
    """Return the paired difference of the losses, or why there is none."""
    each = [run for side in runs for run in side]
    reason = next((run.why_no_loss for run in each if run.losses is None), "")
    if shared.by_text:
        reason = "the models split the prompts into different tokens"
    if reason:
        return reason
    a, b = (np.stack([run.losses for run in side if run.losses is not None]) for side in runs)
    gap = b.mean(0) - a.mean(0)
    row = {"metric": "loss", "unit": "nats/token"} | side_scores(a, b, gap, paired)
    one = ModelDifferences((row,), gap[None], {"loss": shared.clusters})
    tested = one.to_pandas().iloc[0]
    numbers = {k: float(tested[k]) for k in ("low", "high", "p")}
    counts = {k: int(tested[k]) for k in ("n", "clusters")}
    return LossChange(float(tested["score_a"]), float(tested["score_b"]), **numbers, **counts)


def _patterns(
    found: ModelDifferences, runs: Sequence[Sequence[ComparedRun]], shared: SharedPrompts, top: int
) -> tuple[dict[str, Any], ...]:
    """Return the places of the largest changes, where both models read the same tokens."""
    first, second = runs[0][0].model, runs[1][0].model
    if first is None or second is None or shared.by_text or not shared.hash:
        return ()
    if any(m.elsewhere is not None or m.ranks is not None for m in (first, second)):
        return ()
    assert found.answer is not None
    pairs: list[HeadPair] = [
        (x.stack, Head.parse(x.head), Head.parse(x.head_b)) for x in found.answer.heads[:top]
    ]
    return changed_patterns(first, second, shared.of(first), pairs)
