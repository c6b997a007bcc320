"""Folds of whole documents, and shuffled labels that keep what documents share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Int

from interp.core.errors import OptionError, PromptError

Numbers = Int[np.ndarray, " item"]


def document_numbers(documents: Sequence[Hashable], items: Sequence[str]) -> Numbers:
    """Return the number of each item's document."""
    if len(documents) != len(items):
        raise OptionError(f"{len(documents)} documents for {len(items)} items; give one each")
    holder: dict[str, Hashable] = {}
    for i, (item, document) in enumerate(zip(items, documents, strict=True)):
        if holder.setdefault(item, document) != document:
            raise PromptError(
                f"item {i} of document {document!r} is the same prompt as one of document "
                f"{holder[item]!r}, so it would leak between folds; give both the same document, "
                f"or leave one out"
            )
    number = {d: n for n, d in enumerate(dict.fromkeys(documents))}
    if len(number) < 2:
        raise OptionError("all items are of one document; folds need at least two documents")
    return np.array([number[d] for d in documents])


def fold_numbers(documents: Numbers, folds: int | Sequence[int], seed: int) -> Numbers:
    """Return the fold of each item; folds are made without a look at the labels."""
    if not isinstance(folds, int):
        fold_labels = np.asarray(folds)
        if fold_labels.shape != documents.shape:
            raise OptionError(f"{fold_labels.size} folds for {len(documents)} items; give one each")
        for document in np.unique(documents):
            document_folds = np.unique(fold_labels[documents == document])
            if len(document_folds) > 1:
                raise OptionError(
                    f"document {document} (in order) leaks between the folds "
                    f"{document_folds.tolist()}; put all of its items into one fold"
                )
        folds_given = np.unique(fold_labels, return_inverse=True)[1]
        if folds_given.max() == 0:
            raise OptionError("all items are in one fold; give at least two folds")
        return folds_given
    sizes = np.bincount(documents)
    if not 2 <= folds <= len(sizes):
        raise OptionError(
            f"folds={folds}: give at least 2, and at most one per document ({len(sizes)})"
        )
    order = np.random.default_rng(seed).permutation(len(sizes))
    held, fold = np.zeros(folds, dtype=int), np.zeros(len(sizes), dtype=int)
    for document in order[np.argsort(-sizes[order], kind="stable")]:
        fold[document] = held.argmin()
        held[fold[document]] += sizes[document]
    return fold[documents]


def shuffled_labels(labels: Numbers, documents: Numbers, rng: np.random.Generator) -> Numbers:
    """Return labels in random order: among documents if each has one label, else inside each."""
    ends = [labels[documents == d] for d in range(documents.max() + 1)]
    if all((x == x[0]).all() for x in ends):
        return rng.permutation(np.array([x[0] for x in ends]))[documents]
    out = labels.copy()
    for d in range(documents.max() + 1):
        out[documents == d] = rng.permutation(labels[documents == d])
    return out


def require_two_classes(labels: Sequence[Hashable], documents: Numbers) -> tuple[Numbers, list]:
    """Return labels as 0 and 1, and the two classes in order."""
    if len(labels) != len(documents):
        raise OptionError(f"{len(labels)} labels for {len(documents)} items; give one each")
    classes = sorted(set(labels), key=repr)
    if len(classes) != 2:
        raise OptionError(
            f"labels of {len(classes)} classes ({', '.join(map(repr, classes[:5]))}); a probe "
            f"needs exactly two"
        )
    binary = np.array([classes.index(x) for x in labels])
    for n, name in enumerate(classes):
        if len(np.unique(documents[binary == n])) < 2:
            raise OptionError(
                f"label {name!r} occurs in one document only, so a probe cannot be trained on some "
                f"documents and tested on others; give more documents"
            )
    return binary, classes
