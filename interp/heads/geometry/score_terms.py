"""Shares of contents and positions in attention scores that are sums of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.errors import UnreadableAttention
from interp.heads.declaration import measurement

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


@measurement(unit="share of the variance of scores", requires=("terms",))
def content_term(layer):
    """Share of the product of queries and keys in how scores tell keys apart.

    Covariance of the term with the scores over the keys that a query sees, summed over queries,
    over the variance of the scores: 1 if scores are this product alone. It is below 0 for a term
    that others outweigh. The shares of `content_term`, `content_to_position_term`,
    `position_to_content_term` and `position_term` sum to 1.

    Not for: positions that are rotated into queries and keys, or added to the embeddings: they
    are part of this product.

    Reference: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention" (arXiv
    2006.03654), equation 2.
    """
    return shares_of_terms(layer)["content"]


@measurement(unit="share of the variance of scores", requires=("terms",))
def content_to_position_term(layer):
    """Share of products of queries and relative positions in how scores tell keys apart.

    How far a key lies decides, in a way that depends on the query's content: what DeBERTa calls
    content-to-position, and the positional term of XLNet and of Conformers. See `content_term`.

    Not for: biases that are the same for all contents: see `position_term`.

    Reference: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention" (arXiv
    2006.03654), equation 4.
    """
    return shares_of_terms(layer)["content_to_position"]


@measurement(unit="share of the variance of scores", requires=("terms",))
def position_to_content_term(layer):
    """Share of products of keys and relative positions in how scores tell keys apart.

    What the key is decides, in a way that depends on how far it lies, but not on the query's
    content: what DeBERTa calls position-to-content. See `content_term`.

    Not for: keys that are preferred at any distance, such as sinks: their score is part of
    `content_term`.

    Reference: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention" (arXiv
    2006.03654), equation 4.
    """
    return shares_of_terms(layer)["position_to_content"]


@measurement(unit="share of the variance of scores", requires=("terms",))
def position_term(layer):
    """Share of biases of position alone in how scores tell keys apart.

    Biases such as those of T5 and ALiBi, which no content changes. See `content_term`. 0 for
    models without a bias.

    Not for: positions that are rotated into queries and keys, or added to the embeddings.

    Reference: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
    Text-to-Text Transformer" (arXiv 1910.10683), relative position embeddings.
    """
    return shares_of_terms(layer)["position"]


ROUNDING = 1e-6  # share of the largest score: a smaller remainder is no term of its own


def shares_of_terms(layer: LayerCall) -> dict[str, Float[Tensor, "prompt head"]]:
    """Return the share of every term in the variance of scores over the keys that a query sees.

    A term's share is its covariance with the scores, summed over queries, over the summed variance
    of the scores; the shares of all terms sum to 1.
    """
    import torch

    covariances: dict[str, Tensor] = {}
    total: Tensor | None = None
    for rows in layer.slices():
        scores, terms = _terms(layer, rows)
        seen = layer.call.visible(rows).expand_as(scores).double()
        number = seen.sum(-1, keepdim=True).clamp_min(1)

        def centred(x: Tensor, seen: Tensor = seen, number: Tensor = number) -> Tensor:
            x = x * seen
            return (x - x.sum(-1, keepdim=True) / number) * seen

        centred_scores = centred(scores)
        variance = centred_scores.square().sum((-1, -2))
        total = variance if total is None else total + variance
        for name, x in terms.items():
            covariance = (centred_scores * centred(x)).sum((-1, -2))
            covariances[name] = (
                covariances[name] + covariance if name in covariances else covariance
            )
    assert total is not None  # a layer has a row
    return {name: x / torch.where(total > 0, total, torch.nan) for name, x in covariances.items()}


def _terms(layer: LayerCall, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the scores of some rows, hidden keys as 0, and their terms."""
    import torch

    from interp.model.calls.call import ComputedCall

    call = layer.call
    if not isinstance(call, ComputedCall):
        raise UnreadableAttention(f"the terms of the scores of {layer.site.name} are not known")
    scores = torch.where(call.visible(rows), call.scores(rows).double(), 0.0)
    content = layer.q[:, :, rows] @ layer.k.mT * call.scale
    if call.softcap is not None:
        content = torch.tanh(content / call.softcap) * call.softcap
    terms = {"content": content}
    for name in ("content_to_position", "position_to_content"):
        x = layer.terms.get(name)
        if x is None:
            terms[name] = torch.zeros_like(content)
        else:
            terms[name] = (x[:, :, rows] if x.shape[2] > 1 else x).double()
    rest = scores - sum(terms.values())
    terms["position"] = rest.where(rest.abs() > ROUNDING * scores.abs().max(), 0.0)
    return scores, terms
