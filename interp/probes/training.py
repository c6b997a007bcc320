"""Training of a probe with cross-validation by document, controls and heads behind it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.probes.features import HeadFeatures
from interp.probes.folds import (
    Numbers,
    document_numbers,
    fold_numbers,
    require_two_classes,
    shuffled_labels,
)
from interp.probes.linear import fit_calibrated, fit_linear, logistic
from interp.probes.result import (
    auc_by_fold,
    interval_over_documents,
    probe_rows,
    reliability_bins,
)
from interp.probes.saved import HeadProbe

Array = np.ndarray
CONTROLS = 5  # random labellings of the control task


@dataclass(frozen=True)
class _Held:
    """Predictions on held-out items, and the rise of their loss without each head."""

    log_odds: Float[Array, " item"]
    probability: Float[Array, " item"]
    rise: Float[Array, "item head"]


def train_probe(
    features: HeadFeatures,
    labels: Sequence[Hashable],
    documents: Sequence[Hashable],
    *,
    types: Sequence[Hashable] | None = None,
    folds: int | Sequence[int] = 5,
    strength: float = 1.0,
    n_permutations: int = 99,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Train a linear probe on features of heads, and measure it on documents it has not seen.

    Features are standardised and a logistic regression is fitted on all but one fold of documents;
    its probabilities are calibrated (Platt) on documents held out once more inside these. `auc` is
    of pairs inside one fold. Intervals are over documents, for probes as trained; p is the rank of
    the AUC among those with shuffled labels (among documents if each has one label, else inside
    each). A head's score is the rise of the held-out log loss, in nats per item, when its features
    are set to their mean; its p is corrected for all heads by the largest rise under each
    shuffling. The probe that is kept is trained on all documents.

    Args:
        features: the features; see `output_features`, `metric_features`, `lookback_features`.
        labels: the label of each item, of two classes; the second in order is the positive one.
        documents: the document of each item. All items of a document are in one fold.
        types: the type of each item, such as its token, for the control task of Hewitt and Liang
            2019 (arXiv 1909.03368): each type gets a random label. Selectivity is the accuracy
            minus that on the control task.
        folds: number of folds, or the fold of each item.
        strength: inverse of the penalty on squared weights.
        n_permutations: number of shufflings.
        seed: seed of folds, shufflings and control tasks.
        progress: see `Progress`.

    Returns:
        One row per head; null and p only with shufflings. Errors are over documents, the clusters
        of the items. Facts: scores, the held-out ones, where `auc_interval` and others are 95 %
        intervals over documents; bins, the mean probability, share of the positive class and number
        of items per bin; probe, trained on all documents; held_out, the calibrated probability of
        every item from a probe that has not seen its document; about, the numbers of items,
        documents, folds and shufflings.

    Raises:
        OptionError: labels are not of two classes, a class is in one document alone, folds split a
            document, or types never occur in two documents.
        PromptError: one prompt occurs in two documents.

    Unit: nats per item for a head; AUC, accuracy and Brier score for the probe.

    Cost: No forward pass: a few fits per fold, and one per fold and shuffling.

    Null: The same with shuffled labels (whole documents where each has one label).

    Not for: what the model uses; ablate the heads for that. Two heads that carry the same
    information both score 0, since the probe does without either.

    Reference: Belinkov 2022, "Probing Classifiers" (arXiv 2102.12452).
    """
    where = document_numbers(documents, features.items)
    y, classes = require_two_classes(labels, where)
    fold = fold_numbers(where, folds, seed)
    if strength <= 0 or n_permutations < 0:
        raise OptionError(
            f"strength={strength}, n_permutations={n_permutations}: the first must be above 0, the "
            f"second 0 or more"
        )
    progress = progress or silent
    rng = np.random.default_rng(seed)
    held_out = _held_out(features, y, where, fold, strength, seed, calibrate=True)
    auc = auc_by_fold(held_out.log_odds, y, fold)
    shuffled, largest = [], []
    for i in range(n_permutations):
        progress("shuffled labels", i, n_permutations)
        mine = shuffled_labels(y, where, rng)
        other = _held_out(features, mine, where, fold, strength, seed, calibrate=False)
        shuffled.append(auc_by_fold(other.log_odds, mine, fold))
        largest.append(other.rise.mean(0).max())
    progress("shuffled labels", n_permutations, n_permutations)
    right = ((held_out.probability > 0.5) == (y == 1)).astype(float)
    scores: dict[str, Any] = {
        "auc": auc,
        "auc_interval": interval_over_documents(
            lambda kept: auc_by_fold(held_out.log_odds[kept], y[kept], fold[kept]), where
        ),
        "auc_shuffled": float(np.mean(shuffled)) if shuffled else None,
        "p": _rank(auc, shuffled),
        "accuracy": float(right.mean()),
        "accuracy_interval": interval_over_documents(lambda kept: float(right[kept].mean()), where),
        "most_common": float(max(y.mean(), 1 - y.mean())),
        "brier": float(((held_out.probability - y) ** 2).mean()),
        "brier_uncalibrated": float(((logistic(held_out.log_odds) - y) ** 2).mean()),
        "brier_constant": float(y.mean() * (1 - y.mean())),
    }
    if types is not None:
        control = _control(features, types, where, y, fold, strength, seed, rng)
        scores |= {"control_accuracy": control, "selectivity": scores["accuracy"] - control}
    bins, error = reliability_bins(held_out.probability, y)
    scores["calibration_error"] = error
    probe = HeadProbe(
        fit_calibrated(features.x, y, where, strength, seed),
        features.kind,
        features.places,
        tuple(map(str, classes)),
        dict(features.model),
        scores,
    )
    about = {
        "items": len(y),
        "documents": int(where.max()) + 1,
        "folds": int(fold.max()) + 1,
        "permutations": n_permutations,
        "features": features.kind,
        "seed": seed,
    }
    ranked = [_rank(float(x), largest) for x in held_out.rise.mean(0)]
    facts = {
        "scores": scores,
        "bins": bins,
        "probe": probe,
        "held_out": held_out.probability,
        "about": about,
    }
    return probe_rows(
        features.heads,
        held_out.rise.T.copy(),
        np.array(ranked, float) if n_permutations else None,
        tuple(f"{n}: {documents[i]}" for i, n in enumerate(where.tolist())),
        facts,
        _provenance(features, about, y, strength),
    )


def _provenance(
    features: HeadFeatures, about: Mapping[str, Any], y: Numbers, strength: float
) -> dict[str, Any]:
    from interp import __version__

    items = hashlib.sha256(json.dumps([features.items, y.tolist()]).encode()).hexdigest()
    return {
        "model": features.model.get("name"),
        "model_id": features.model.get("name"),
        "content_hash": features.model.get("hash"),
        "prompts": about["features"],
        "prompts_hash": items,
        "n_prompts": len(y),
        "options": dict(about) | {"strength": strength},
        "seed": about["seed"],
        "made_by": "interp.probes.train_probe",
        "versions": {"interp": __version__},
    }


def _held_out(
    features: HeadFeatures,
    y: Numbers,
    documents: Numbers,
    fold: Numbers,
    strength: float,
    seed: int,
    *,
    calibrate: bool,
) -> _Held:
    heads = features.of_head()
    log_odds, probability = np.zeros(len(y)), np.zeros(len(y))
    rise = np.zeros((len(y), len(features.heads)))
    for each in np.unique(fold):
        here = fold == each
        x, inside = features.x[~here], y[~here]
        probe = (
            fit_calibrated(x, inside, documents[~here], strength, seed)
            if calibrate
            else fit_linear(x, inside, strength)
        )
        parts = probe.parts(features.x[here])
        log_odds[here] = parts.sum(1) + probe.intercept
        probability[here] = probe.probabilities(features.x[here])
        added = np.stack([parts[:, heads == h].sum(1) for h in range(rise.shape[1])], 1)
        rise[here] = _loss(log_odds[here, None] - added, y[here, None]) - _loss(
            log_odds[here, None], y[here, None]
        )
    return _Held(log_odds, probability, rise)


def _loss(log_odds: Float[Array, "item *a"], y: Array) -> Float[Array, "item *a"]:
    return np.logaddexp(0, log_odds) - y * log_odds


def _rank(value: float, others: Sequence[float]) -> float | None:
    """Return the share of shufflings, with the unshuffled one, that are at least as high."""
    if not others:
        return None
    return (1 + sum(x >= value - 1e-12 for x in others)) / (len(others) + 1)


def _control(
    features: HeadFeatures,
    types: Sequence[Hashable],
    documents: Numbers,
    y: Numbers,
    fold: Numbers,
    strength: float,
    seed: int,
    rng: np.random.Generator,
) -> float:
    """Return the accuracy on control tasks: a random label per type, at the rate of the labels."""
    if len(types) != len(y):
        raise OptionError(f"{len(types)} types for {len(y)} items; give one each")
    number = {t: n for n, t in enumerate(dict.fromkeys(types))}
    which = np.array([number[t] for t in types])
    again = [len(np.unique(documents[which == n])) > 1 for n in range(len(number))]
    if not any(again):
        raise OptionError(
            "no type occurs in two documents, so a control task cannot be learned from other "
            "documents; give types that recur, such as tokens, or none"
        )
    accuracies = []
    for _ in range(CONTROLS):
        label = (rng.random(len(number)) < y.mean()).astype(int)[which]
        if len(np.unique(label)) < 2:
            continue
        held = _held_out(features, label, documents, fold, strength, seed, calibrate=True)
        accuracies.append(((held.probability > 0.5) == (label == 1)).mean())
    if not accuracies:
        raise OptionError(f"{len(number)} types are too few for a control task; give more")
    return float(np.mean(accuracies))
