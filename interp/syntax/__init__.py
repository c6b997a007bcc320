"""Dependency trees from attention heads: heads that link words by relation, and their accuracy.

    treebank   sentences as trees, read strictly          conllu.py, treebank.py
    words      pieces of a tokenizer to words             align.py, attention.py
    relations  the best head of each, chosen and tested   gold.py, relations.py
    trees      spanning trees, joined heads, a probe      spanning.py, building.py, probe.py
    all of it  `dependency_trees(model, treebank)`        search.py, result.py
    cause      effect of ablation on minimal pairs        pairs.py

A head that attends along a relation is not necessarily used by the model: `pairs` tests that.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
