"""Attention of all heads, weighted by weights that ablations taught."""

from __future__ import annotations

import numpy as np

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError, StoreError


@attribution(unit="weighted attention", signed=True, needs="patterns")
def learned_attention(example: Example, *, weights: str = "") -> Scores:
    """Sum the attention of all heads to a token, with a learned weight per head.

    The weights are those of a file written by `interp attribute head-weights -o FILE`, learned by
    `interp.attribution.learn_head_weights` from ablations on other texts. Attention is taken from
    the target's output position. Without a file all heads have the same weight.

    Not for: models or targets other than those on which the weights were learned; and without
    weights, explanations.

    Args:
        example: the input and its target.
        weights: path of the file; empty for equal weights.

    Reference: Cohen-Wang et al. 2025, "Learning to Attribute with Attention" (arXiv 2504.13752).
    """
    from interp.attribution.learned_weights import head_attention
    from interp.core.result_rows import ResultRows

    attention, names = head_attention(example)
    if not weights:
        equal = np.full(len(names), 1 / len(names))
        return Scores(equal @ attention, notes={"weights": "equal: no file was given"})
    learned = ResultRows.load(weights)
    if learned.kind != "LearnedHeadWeights":
        raise StoreError(
            f"{weights} holds results of the kind {learned.kind}; give a file of "
            "`interp attribute head-weights`"
        )
    if [*zip(learned.layer, learned.columns["head"], strict=True)] != names:
        raise OptionError(
            f"{weights} has weights of {len(learned)} heads, but {example.model.name} has "
            f"{len(names)}; learn weights on this model"
        )
    if learned.provenance["content_hash"] != example.model.content_hash:
        raise OptionError(
            f"{weights} was learned on {learned.provenance['model_id']}, whose weights are not "
            f"those of {example.model.name}; learn weights on this model"
        )
    return Scores(learned.score @ attention, notes={"weights": f"learned on {learned.n[0]} texts"})
