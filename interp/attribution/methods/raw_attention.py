"""Attention itself: of one layer, averaged, its concentration, and weighted by learned weights."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers, target_rows
from interp.attribution.graph.streamed_patterns import NOTES, attended, is_streamed, received
from interp.core.errors import OptionError, StoreError


@attribution(unit="attention mass", signed=False, needs="patterns")
def raw_attention(example: Example, *, layer: int = -1, stack: str = "") -> Scores:
    """Average the attention of one layer over heads, from the target's output position.

    The tokens to which a head attends need not be those on which the output depends; `occlusion`
    measures the latter. Above 256 MiB of patterns only the target's row is computed, in blocks, and
    there is no matrix.

    Not for: explanations: attention to a token does not show that the model uses it.
    `bundled:deceive` misleads it.

    Args:
        example: the input and its target.
        layer: index of the layer from 0, negative from the end.
        stack: name of the stack, if the model has several.

    Reference: the baseline of Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers".
    """
    sites = example.sites(stack or None)
    if not -len(sites) <= layer < len(sites):
        raise OptionError(
            f"layer={layer} does not exist; there are {len(sites)} layers, counted from 0"
        )
    if is_streamed(example, stack):
        (row,) = attended(example, stack, layer % len(sites))
        return Scores(row.mean(0).numpy(), notes=dict(NOTES))
    sites, patterns = stored_layers(example, stack)
    matrix = patterns[layer].double().mean(0)
    rows = target_rows(example, sites[0].stack)
    return Scores(rows @ matrix.cpu().numpy(), matrix.cpu().numpy())


@attribution(unit="attention mass", signed=False, needs="patterns")
def mean_attention(example: Example, *, stack: str = "") -> Scores:
    """Average attention from the target's output position over layers and heads.

    Layers are treated independently: information that a lower layer moved is credited to the
    position to which it was moved, not to the token from which it came. Above 256 MiB of patterns
    only the target's row is computed, in blocks, and there is no matrix.

    Not for: explanations: information that lower layers moved is credited to the wrong position.
    `bundled:deceive` misleads it.

    Args:
        example: the input and its target.
        stack: name of the stack, if the model has several.
    """
    if is_streamed(example, stack):
        rows = torch.stack([row.mean(0) for row in attended(example, stack)])
        return Scores(rows.mean(0).numpy(), notes=dict(NOTES))
    sites, patterns = stored_layers(example, stack)
    matrix = torch.stack([p.double().mean(0) for p in patterns]).mean(0).cpu().numpy()
    return Scores(target_rows(example, sites[0].stack) @ matrix, matrix)


@attribution(unit="concentration", signed=False, needs="patterns")
def column_concentration(example: Example, *, stack: str = "") -> Scores:
    """Compute the part of each token in the concentration of attention, for any target.

    For each head, the attention that a token receives on average from the queries that can see it
    is divided by the sum of this quantity over all tokens. The score is the square of this share,
    averaged over layers and heads. Scores sum to the mean concentration (Herfindahl index): 1/n if
    all tokens receive equal attention, 1 if one token receives all of it. `total` is this sum, and
    the notes give its inverse, the effective number of tokens.

    Not for: explaining a target, and inputs on which sinks take most of the attention.

    Args:
        example: the input and its target.
        stack: name of the stack, if the model has several.

    The definition is this project's own; column sums as a measure of importance are from Zhang et
    al. 2023, "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language
    Models".
    """
    notes = {}
    if is_streamed(example, stack):
        notes = dict(NOTES)
        pairs = zip(example.sites(stack or None), received(example, stack), strict=True)
        share = torch.cat([shares(total, len(example), site.causal) for site, total in pairs])
    else:
        layers = zip(*stored_layers(example, stack), strict=True)
        share = torch.cat([received_shares(p.double(), site.causal) for site, p in layers])
    scores = (share**2).mean(0).cpu().numpy()
    total = float((share**2).sum(1).mean())
    return Scores(
        scores, total=total, notes=notes | {"effective tokens": 1 / total if total else None}
    )


def received_shares(
    pattern: Float[Tensor, "head query_pos key_pos"], causal: bool
) -> Float[Tensor, "head key_pos"]:
    """Compute each key's share of the received attention, averaged over queries that can see it."""
    return shares(pattern.sum(1), pattern.shape[1], causal)


def shares(
    total: Float[Tensor, "head key_pos"], queries: int, causal: bool
) -> Float[Tensor, "head key_pos"]:
    """Compute the same from the attention that each key receives in total."""
    keys = total.shape[1]
    seen_by = torch.full((keys,), float(queries), dtype=total.dtype, device=total.device)
    if causal:
        seen_by = queries - torch.arange(keys, dtype=total.dtype, device=total.device)
    mean = total / seen_by
    return mean / mean.sum(1, keepdim=True).clamp_min(1e-30)


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
