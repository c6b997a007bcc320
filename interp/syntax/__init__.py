"""Dependency trees from attention heads: which head links which words, and how well.

    treebank   sentences as trees, read strictly          conllu.py, treebank.py
    words      pieces of a tokenizer to words             align.py, attention.py
    relations  the best head of each, chosen and tested   gold.py, relations.py
    trees      spanning trees, joined heads, a probe      spanning.py, building.py, probe.py
    all of it  `dependency_trees(model, treebank)`        search.py, result.py
    cause      does a head's loss hurt what needs it      pairs.py

A head that attends along a relation need not be used for it: `pairs` asks that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.syntax.attention import Reading, WordAttention, word_attention
    from interp.syntax.conllu import read_conllu
    from interp.syntax.pairs import Pair, PairCheck, check_pairs, read_pairs
    from interp.syntax.result import Relation, Trees, TreeScores
    from interp.syntax.search import dependency_trees
    from interp.syntax.treebank import Sentence, Treebank

_WHERE = {
    "Pair": "pairs",
    "PairCheck": "pairs",
    "Reading": "attention",
    "Relation": "result",
    "Sentence": "treebank",
    "TreeScores": "result",
    "Treebank": "treebank",
    "Trees": "result",
    "WordAttention": "attention",
    "check_pairs": "pairs",
    "dependency_trees": "search",
    "read_conllu": "conllu",
    "read_pairs": "pairs",
    "word_attention": "attention",
}

__all__ = [
    "Pair",
    "PairCheck",
    "Reading",
    "Relation",
    "Sentence",
    "TreeScores",
    "Treebank",
    "Trees",
    "WordAttention",
    "check_pairs",
    "dependency_trees",
    "read_conllu",
    "read_pairs",
    "word_attention",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'interp.syntax' has no attribute {name!r}")
    return getattr(import_module(f"interp.syntax.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
