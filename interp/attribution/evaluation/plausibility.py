"""Plausibility of attribution methods: agreement with the rationales of human annotators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from interp.attribution.declaration import choose_methods
from interp.attribution.evaluation.rationales import (
    Rationale,
    read_rationales,
    word_scores,
    word_tokens,
)
from interp.attribution.example import Example
from interp.attribution.target import one_each
from interp.core.errors import InterpError, OptionError
from interp.core.prompt_means import prompt_means
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.statistics import holm
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.attribution.declaration import AttributionMethod, BoundMethod
    from interp.attribution.target import Targets
    from interp.core.protocols import Progress
    from interp.model.model import Model

Array = np.ndarray
MATCH = 0.5  # overlap from which a predicted span matches an annotated one
DRAWS = 20  # random rankings whose mean is the null
RANKINGS = 9_999  # means over documents of random rankings, for p


@takes_model
def plausibility(
    model: Model,
    rationales: str | Path | Sequence[Rationale],
    methods: Iterable[str | AttributionMethod | BoundMethod],
    targets: Targets | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure how well scores agree with the words that annotators marked.

    A word's score is the sum of |score| over its tokens. `token_f1` and `iou_f1` take as many words
    as the annotator marked: F1 over words, and F1 over spans, where a predicted span of adjacent
    words matches an annotated one if the two share at least half of their union. `auprc` is the
    area under the precision-recall curve over all thresholds. Agreement with people is not
    faithfulness: a faithful explanation of a model that reasons otherwise agrees with nobody.

    Args:
        model: a loaded model, or what `load` accepts.
        rationales: path of a file in the layout of ERASER, or rationales.
        methods: names, with options as `name:option=value`, or methods.
        targets: one target for all documents or one per document; a text may hold `{label}`, which
            stands for the annotated class.
        seed: seed of the random rankings.
        progress: see `Progress`.

    Returns:
        A row per measure and method; the null is the mean over random rankings of the same words.
        Errors are over documents, which are the clusters. p is the larger of two: by random signs
        of whole documents, and the rank of the mean among those of random rankings.

    Raises:
        PromptError: a rationale does not align with its document or the model's tokens.
        OptionError: a document has no marked words, or every word is marked.

    Reference: DeYoung et al. 2020, "ERASER: A Benchmark to Evaluate Rationalized NLP Models".
    """
    annotated = (
        read_rationales(rationales) if isinstance(rationales, (str, Path)) else list(rationales)
    )
    if not annotated:
        raise OptionError("no rationales given; give at least one")
    chosen = choose_methods(methods)
    asked = one_each(targets, len(annotated))
    rng = np.random.default_rng(seed)
    agreement = np.full((len(AGREEMENT), len(chosen), len(annotated)), np.nan)
    draws = np.full((len(AGREEMENT), len(annotated), DRAWS), np.nan)
    notes, ids = {}, []
    for i, (one, target) in enumerate(zip(annotated, asked, strict=True)):
        if one.evidence.all() or not one.evidence.any():
            raise OptionError(
                f"rationale {one.name}: {int(one.evidence.sum())} of {len(one.words)} words are "
                "marked, so nothing can agree or disagree; leave it out"
            )
        named = target.replace("{label}", one.label) if isinstance(target, str) else target
        tokens, which = word_tokens(model, one.words, one.name)
        example = Example(model, [tokens], named)
        ids.append(example.ids)
        drawn = [rng.random(len(one.words)) for _ in range(DRAWS)]
        for m, measure in enumerate(AGREEMENT.values()):
            draws[m, i] = [measure(x, one.evidence) for x in drawn]
        for k, method in enumerate(chosen):
            try:
                scores = method.of(example).scores
            except InterpError as error:
                notes.setdefault(method.label, str(error))
                continue
            words = word_scores(scores, which, len(one.words))
            for m, measure in enumerate(AGREEMENT.values()):
                agreement[m, k, i] = measure(words, one.evidence)
        if progress is not None:
            progress("documents", i + 1, len(annotated))
    about = [
        {"metric": measure, "method": one.label, "unit": "share"}
        for measure in AGREEMENT
        for one in chosen
    ]
    nulls = np.repeat(draws.mean(2), len(chosen), axis=0)
    provenance = result_provenance(
        model,
        "interp.attribution.plausibility",
        Prompts(tuple(ids)),
        seed=seed,
        methods=[one.label for one in chosen],
    )
    values = agreement.reshape(-1, len(annotated))
    tested = prompt_means(
        about,
        ("method",),
        values,
        np.where(np.isnan(values), np.nan, nulls),
        clusters=[one.document for one in annotated],
        notes=notes,
        provenance=provenance,
    )
    drawn = np.repeat(draws, len(chosen), 0)
    by_ranks = [ranking_p(x, each, rng) for x, each in zip(values, drawn, strict=True)]
    p = np.maximum(tested.p, by_ranks)
    columns = tested.columns | {"p": p, "p_holm": holm(p, tested.columns["metric"])}
    return replace(tested, columns=columns)


def ranking_p(
    values: Float[Array, " document"],
    drawn: Float[Array, "document draw"],
    rng: np.random.Generator,
) -> float:
    """Return the two-sided p value of a mean over documents among those of random rankings.

    Agreement is skewed (most rankings of a long document hit nothing), so random signs alone reject
    too often. One drawn ranking per document, chosen at random, gives a mean of the null.
    """
    there = ~np.isnan(values)
    if not there.any():
        return 1.0
    shown = drawn[there]
    chosen = rng.integers(shown.shape[1], size=(RANKINGS, len(shown)))
    null = np.abs(shown[np.arange(len(shown)), chosen].mean(1) - shown.mean())
    seen = abs(float(values[there].mean()) - float(shown.mean()))
    return float((1 + (null >= seen - 1e-12).sum()) / (1 + RANKINGS))


def token_f1(scores: Float[Array, " word"], evidence: Bool[Array, " word"]) -> float:
    """Compute F1 over words of as many words of largest score as are marked.

    The two numbers are equal, so precision, recall and F1 are.
    """
    return float((_top(scores, evidence) & evidence).sum() / evidence.sum())


def iou_f1(scores: Float[Array, " word"], evidence: Bool[Array, " word"]) -> float:
    """Compute F1 over spans, of which two match if they share at least half of their union."""
    predicted, marked = word_runs(_top(scores, evidence)), word_runs(evidence)
    hits = [max(_overlap(a, b) for b in marked) >= MATCH for a in predicted]
    reached = [max(_overlap(a, b) for a in predicted) >= MATCH for b in marked]
    precision, recall = float(np.mean(hits)), float(np.mean(reached))
    return 0.0 if precision + recall == 0 else 2 * precision * recall / (precision + recall)


def auprc(scores: Float[Array, " word"], evidence: Bool[Array, " word"]) -> float:
    """Compute the area under the curve of precision against recall."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, _ = precision_recall_curve(evidence, scores)
    return float(-np.trapezoid(precision, recall))  # recall falls along the curve


AGREEMENT: dict[str, Callable[[Array, Array], float]] = {
    "token_f1": token_f1,
    "iou_f1": iou_f1,
    "auprc": auprc,
}


def word_runs(marked: Bool[Array, " word"]) -> list[tuple[int, int]]:
    """Return the runs of adjacent marked words, as first and one after the last."""
    edges = np.flatnonzero(np.diff(np.r_[False, marked, False].astype(int)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> float:
    shared = max(0, min(a[1], b[1]) - max(a[0], b[0]))
    return shared / (a[1] - a[0] + b[1] - b[0] - shared)


def _top(scores: Array, evidence: Array) -> Bool[Array, " word"]:
    top = np.zeros(len(scores), dtype=bool)
    top[np.argsort(-scores, kind="stable")[: int(evidence.sum())]] = True
    return top
