"""Sentence pairs with known alignments, made for the bundled model that reorders."""

from __future__ import annotations

from interp.alignment.pair_file import SentencePair
from interp.bundled.reorder_text import reorder_pairs


def made_sentence_pairs(n: int = 64, seed: int = 1) -> list[SentencePair]:
    """Make pairs in the two languages of bundled:reorder, with the links that made them.

    Args:
        n: number of pairs.
        seed: seed of the pairs; the model was trained on those of seed 0, which hold most of the
            sentences of three words.
    """
    return [
        SentencePair(" ".join(p.source), " ".join(p.target), frozenset(p.links))
        for p in reorder_pairs(seed, n)
    ]
