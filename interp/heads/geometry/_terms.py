"""Shares of the terms of attention scores in how scores tell keys apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import ComputedCall

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall

ROUNDING = 1e-6  # share of the largest score: a smaller remainder is no term of its own


def shares_of_terms(layer: LayerCall) -> dict[str, Float[Tensor, "prompt head"]]:
    """Return the share of every term in the variance of scores over the keys that a query sees.

    A term's share is its covariance with the scores, summed over queries, over the summed variance
    of the scores; the shares of all terms sum to 1.
    """
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
