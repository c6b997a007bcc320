"""Word alignments from attention weights, and their agreement with gold alignments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from interp.alignment.pair_file import SentencePair, side_words
from interp.core.errors import OptionError
from interp.core.statistics import DRAWS, redraw_counts

Array = np.ndarray
AlignedRow = Literal["emits", "fed"]
ROWS: tuple[AlignedRow, ...] = ("emits", "fed")
"""Decoder row whose attention aligns a target word: that which emits it, or is fed it."""
UNLINKED = -1


class LinkCounts(NamedTuple):
    """Sizes of an alignment A, of the gold links S (sure), and of A in S and in P (possible)."""

    links: Array
    sure: Array
    in_sure: Array
    in_possible: Array


def require_rows(rows: str) -> tuple[AlignedRow, ...]:
    """Return the conventions that are asked for; "both" are both."""
    if rows == "both":
        return ROWS
    if rows not in ROWS:
        raise OptionError(
            f"rows={rows!r} is not known; give 'emits' (the row that predicts the word), 'fed' "
            "(the row that reads it) or 'both'"
        )
    return (rows,)  # type: ignore[return-value]


def word_weights(
    pattern: Float[Array, "head row key"],
    source_words: Sequence[int],
    label_words: Sequence[int],
    size: tuple[int, int],
    rows: AlignedRow,
) -> Float[Array, "head target source"]:
    """Return attention between words: summed over the tokens of a source word, mean over rows.

    Special tokens are left out, so rows need not sum to 1. A target word without a row is NaN.
    """
    keys = np.zeros((pattern.shape[2], size[0]))
    for key, word in enumerate(source_words):
        if word >= 0:
            keys[key, word] = 1
    averaging = np.zeros((size[1], pattern.shape[1]))
    for label, word in enumerate(label_words):
        row = label + (rows == "fed")
        if word >= 0 and row < pattern.shape[1]:
            averaging[word, row] = 1
    count = averaging.sum(1, keepdims=True)
    averaging = np.divide(averaging, count, out=np.full_like(averaging, np.nan), where=count > 0)
    with np.errstate(invalid="ignore"):
        return np.einsum("tr,hrk,ks->hts", averaging, pattern, keys)


def largest_links(weights: Float[Array, "head target source"]) -> Int[Array, "head target"]:
    """Return the source word with the largest weight of each target word; -1 without a weight."""
    known = np.isfinite(weights).all(-1) & (weights > 0).any(-1)
    return np.where(known, np.nan_to_num(weights).argmax(-1), UNLINKED)


def link_sets(links: Int[Array, "head target"]) -> list[frozenset[tuple[int, int]]]:
    """Return each head's links as a set of `(source word, target word)`."""
    return [frozenset((int(s), t) for t, s in enumerate(row) if s >= 0) for row in links]


def gold_matrices(pair: SentencePair) -> tuple[Array, Array]:
    """Return the sure and the possible links of a pair, `[target, source]` of 0 and 1."""
    size = len(side_words(pair.target)), len(side_words(pair.source))
    matrices = []
    for links in (pair.sure or frozenset(), pair.possible):
        matrix = np.zeros(size, bool)
        for source, target in links:
            matrix[target, source] = True
        matrices.append(matrix)
    return matrices[0], matrices[1]


def count_links(links: Int[Array, "head target"], sure: Array, possible: Array) -> LinkCounts:
    """Count the links of each head on one pair that are gold; matrices may be smaller than it."""
    targets = min(links.shape[1], len(sure))
    inside = links[:, :targets]
    known = (inside >= 0) & (inside < sure.shape[1])
    at = np.where(known, inside, 0)
    rows = np.arange(targets)
    return LinkCounts(
        (links >= 0).sum(1),
        np.full(len(links), sure.sum()),
        (sure[rows, at] & known).sum(1),
        (possible[rows, at] & known).sum(1),
    )


def alignment_error_rate(
    links: Float[Array, "*x"],
    sure: Float[Array, "*x"],
    in_sure: Float[Array, "*x"],
    in_possible: Float[Array, "*x"],
) -> Float[Array, "*x"]:
    """Compute 1 - (|A and S| + |A and P|) / (|A| + |S|) from counts summed over a corpus.

    0 if A has all sure links and no impossible one; NaN if there are neither links nor gold.

    Reference: Och and Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models".
    """
    total = np.asarray(links + sure, float)
    hits = np.asarray(in_sure + in_possible, float)
    return 1 - np.divide(hits, total, out=np.full(total.shape, np.nan), where=total > 0)


def drawn_error_rates(
    counts: Int[Array, "row sentence 4"], seed: int = 0
) -> Float[Array, "draw row"]:
    """Return alignment error rates on bootstrap draws of sentences, the same for all rows."""
    times = redraw_counts(counts.shape[1], DRAWS, np.random.default_rng(seed))
    return alignment_error_rate(*np.einsum("ds,rsc->cdr", times, counts))


def share_of(part: Array, whole: Array) -> Array:
    """Return a ratio of counts; NaN where the whole is 0."""
    whole = np.asarray(whole, float)
    return np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


def covered(links: Int[Array, "head target"], n_source: int) -> Int[Array, " head"]:
    """Count the source words that have a link, for each head."""
    hit = np.zeros((len(links), n_source + 1), bool)
    hit[np.arange(len(links))[:, None], links] = True  # unlinked words set the last column
    return hit[:, :n_source].sum(1)


def forward_steps(links: Int[Array, "head target"]) -> tuple[Array, Array]:
    """Count neighbouring target words whose links do not go back, and all linked neighbours."""
    both = (links[:, 1:] >= 0) & (links[:, :-1] >= 0)
    return (both & (links[:, 1:] >= links[:, :-1])).sum(1), both.sum(1)
