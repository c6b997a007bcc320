"""Sparse probing: how well a few features of a dictionary tell two classes of texts apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.dictionaries.activations import FIRST, activation_rows
from interp.dictionaries.dictionary import Dictionary
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
N_RANDOM = 8  # draws of random features
ITERATIONS = 1000


@takes_model
def probe_features(
    model: Model,
    dictionary: Dictionary | ResultRows,
    prompts: Any,
    labels: Sequence[int],
    *,
    k: Sequence[int] = (1, 2, 5),
    held_out: float = 0.2,
    first: int = FIRST,
    seed: int = 0,
    other_weights: bool = False,
) -> ResultRows:
    """Classify texts by the k features whose means differ most between two classes.

    Codes are averaged over the positions of a text. The features are chosen and a logistic
    regression is fitted on the training texts; the score is its accuracy on the held-out texts.

    Args:
        model: the model.
        dictionary: a dictionary, or the result of its training.
        prompts: texts or token ids.
        labels: 0 or 1 for each text.
        k: numbers of features.
        held_out: share of the texts of each class that the score is measured on.
        first: positions at the beginning of each text that are left out.
        seed: seed of the split and of random features.
        other_weights: accept a model with other weights than the dictionary was trained on.

    Returns:
        One row per k, and one for `all` features and one for the `activations` themselves, without
        a choice: features, score, sem, null (mean accuracy with as many random features that are
        active in the training texts; NaN without a choice), chance (accuracy of the more frequent
        class), n (held-out texts), and chosen (their numbers, by row, in the facts).

    Raises:
        OptionError: a label is missing or neither 0 nor 1, a class has fewer than 4 texts, k is
            not between 1 and the number of features, or held_out not between 0 and 1.
        DictionaryMismatch: the dictionary belongs to another model, layer or width.

    Unit: share of the held-out texts.

    Cost: One forward pass over the texts, and a regression per row and random draw.

    Null: as many random active features.

    Not for: what the model does with a class: a feature that tells classes apart need not be read.

    Reference: Karvonen et al. 2025, "SAEBench" (arXiv 2503.09532).
    """
    chosen = dictionary.dictionary if isinstance(dictionary, ResultRows) else dictionary
    site = chosen.site_in(model, other_weights=other_weights)
    tokenized, wanted = Prompts.of(prompts, model), np.asarray(labels)
    if len(wanted) != len(tokenized) or not set(wanted.tolist()) <= {0, 1}:
        raise OptionError(f"{len(wanted)} labels for {len(tokenized)} texts; give 0 or 1 for each")
    if min((wanted == c).sum() for c in (0, 1)) < 4:
        raise OptionError("each class needs at least 4 texts, so that some can be held out")
    if not k or not all(1 <= int(x) <= chosen.d_sae for x in k):
        raise OptionError(f"k={tuple(k)}: give numbers from 1 to the {chosen.d_sae} features")
    if not 0 < held_out < 1:
        raise OptionError(f"held_out={held_out}: give a share between 0 and 1")
    codes, raw = [], []
    for ids in tokenized.ids:
        x, _ = activation_rows(model, Prompts((ids,)), site, (chosen.site, chosen.site_out), first)
        raw.append(x.double().mean(0).numpy())
        with torch.no_grad():
            codes.append(chosen.encode(x).double().mean(0).numpy())
    rng = np.random.default_rng(seed)
    test = split_by_class(wanted, held_out, rng)
    fits = sparse_probes(np.stack(codes), wanted, test, k, rng)
    fits["activations"] = (
        fitted(np.stack(raw), wanted, test),
        np.zeros(0, dtype=int),
        float("nan"),
    )
    values = np.stack([right for right, _, _ in fits.values()]).astype(float)
    share = float(wanted[test].mean())
    columns = {
        "features": list(fits),
        "score": values.mean(1),
        "sem": standard_error(values),
        "null": [null for *_, null in fits.values()],
        "chance": max(share, 1 - share),
        "n": int(test.sum()),
    }
    facts = {
        "metric": "sparse_probing",
        "unit": "share of the texts",
        "limits": (0.0, 1.0),
        "chosen": {name: tuple(map(int, some)) for name, (_, some, _) in fits.items()},
    }
    provenance = result_provenance(
        model,
        "interp.dictionaries.probe_features",
        tokenized,
        k=tuple(map(int, k)),
        seed=seed,
        held_out=held_out,
        dictionary=repr(chosen),
    )
    return ResultRows(
        "SparseProbing", columns, ("features",), provenance, facts, values, interval_by="kind"
    )


def split_by_class(
    labels: Int[Array, " text"], held_out: float, rng: np.random.Generator
) -> Bool[Array, " text"]:
    """Return True for the held-out texts: the same share of each class, at least one."""
    test = np.zeros(len(labels), dtype=bool)
    for label in (0, 1):
        mine = rng.permutation(np.flatnonzero(labels == label))
        test[mine[: max(1, round(held_out * len(mine)))]] = True
    return test


def sparse_probes(
    codes: Float[Array, "text feature"],
    labels: Int[Array, " text"],
    test: Bool[Array, " text"],
    k: Sequence[int],
    rng: np.random.Generator,
) -> dict[str, tuple[Bool[Array, " held_out"], Array, float]]:
    """Return which held-out texts are right, the features, and the null, for each k and for all."""
    train = ~test
    means = [codes[train & (labels == label)].mean(0) for label in (0, 1)]
    order = np.argsort(-np.abs(means[1] - means[0]), kind="stable")
    active = np.flatnonzero((codes[train] != 0).any(0))
    nothing = np.zeros(0, dtype=int)
    fits: dict[str, tuple[Array, Array, float]] = {}
    for number in map(int, k):
        top = order[:number]
        drawn = [
            fitted(codes[:, rng.permutation(active)[:number]], labels, test).mean()
            for _ in range(N_RANDOM)
            if len(active) >= number
        ]
        null = float(np.mean(drawn)) if drawn else float("nan")
        fits[f"top {number}"] = fitted(codes[:, top], labels, test), top, null
    return fits | {"all": (fitted(codes, labels, test), nothing, float("nan"))}


def fitted(
    x: Float[Array, "text feature"], labels: Int[Array, " text"], test: Bool[Array, " text"]
) -> Bool[Array, " held_out"]:
    """Fit a logistic regression on the training texts; return which held-out texts are right."""
    from sklearn.linear_model import LogisticRegression

    probe = LogisticRegression(max_iter=ITERATIONS).fit(x[~test], labels[~test])
    return probe.predict(x[test]) == labels[test]
