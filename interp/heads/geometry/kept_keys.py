"""Keys that stay important from query to query and layer to layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.heads.declaration import measurement

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


@measurement(unit="share of keys", low=0.0, high=1.0, requires=("self",))
def lasting_keys(layer, *, k: int = 4):
    """Share of a query's k largest keys that were among the k largest of the query before.

    Averaged over queries whose predecessor sees more than k keys; k / n by chance for n visible
    keys. High for heads whose important keys can be kept from one decoding step to the next.

    Not for: heads that attend at fixed distances, whose keys move on by one token and so do not
    last.

    Options:
        k: number of keys.

    Reference: Yang et al. 2024, "TidalDecode" (arXiv 2410.05076); Yang et al. 2025,
    "AttentionPredictor" (arXiv 2502.04077).
    """
    from interp.heads.layer import mean_of_rows
    from interp_kernels.reductions import TopK

    key = layer.reduce(TopK(k)).key
    again = (key[:, :, 1:, :, None] == key[:, :, :-1, None, :]) & (key[:, :, 1:, :, None] >= 0)
    share = again.any(-1).sum(-1).double() / k
    return mean_of_rows(share, (layer.sees[..., :-1] > k).expand_as(share))


@measurement(unit="share of keys", low=0.0, high=1.0, requires=("self",))
def moving_keys(layer, *, k: int = 4, step: int = 1):
    """Share of a query's k largest keys that lie one token after one of the query before.

    Averaged over queries whose predecessor sees more than k keys. High for heads that attend at
    fixed distances, whose next keys are known; `lasting_keys` counts keys that stay.

    Not for: telling one pattern alone from both: k neighbouring keys last and move on at once.

    Options:
        k: number of keys.
        step: tokens by which a key moves on.

    Reference: Yang et al. 2025, "AttentionPredictor: Temporal Pattern Matters for Efficient LLM
    Inference" (arXiv 2502.04077), the sequential pattern.
    """
    from interp.heads.layer import mean_of_rows
    from interp_kernels.reductions import TopK

    key = layer.reduce(TopK(k)).key
    now, before = key[:, :, 1:, :, None], key[:, :, :-1, None, :]
    again = (now == before + step) & (before >= 0)
    share = again.any(-1).sum(-1).double() / k
    return mean_of_rows(share, (layer.sees[..., :-1] > k).expand_as(share))


@measurement(unit="attention mass", low=0.0, high=1.0, requires=("previous", "self"))
def keys_of_layer_before(layer, *, k: int = 4):
    """Attention on the k keys that the heads of the layer before attend to most.

    For each query the k keys of largest attention, summed over the heads of the previous attention;
    the score is the head's own attention on them, averaged over queries that see more than k keys.
    High for heads that lose little if the layer before selects their keys.

    Not for: the first layer, which has no score.

    Options:
        k: number of keys.

    Reference: Yang et al. 2024, "TidalDecode: Fast and Accurate LLM Decoding with Position
    Persistent Sparse Attention" (arXiv 2410.05076).
    """
    import torch

    from interp.heads.layer import mean_of_rows

    if layer.previous is None:
        return torch.full((len(layer.call.z), layer.heads), torch.nan)
    before, values = layer.previous.call, []
    for rows, pattern, _ in layer.blocks():
        chosen = (before.pattern(rows).double() * before.visible(rows)).sum(1, keepdim=True)
        best = chosen.topk(min(k, chosen.shape[-1]), dim=-1).indices
        values.append(pattern.gather(-1, best.expand(-1, layer.heads, -1, -1)).sum(-1))
    return mean_of_rows(torch.cat(values, -1).clamp(max=1.0), layer.sees > k)


@measurement(unit="shared attention", low=0.0, high=1.0, requires=("previous", "self"))
def reused_pattern(layer, *, drop: int = 1):
    """Similarity of a head's attention to that of the most similar head of the layer before.

    As `similar_head`, over the heads of the previous attention: what could be reused instead of
    being computed again.

    Not for: the first layer, which has no score.

    Options:
        drop: number of first keys that are left out.

    Reference: Bhojanapalli et al. 2021, "Leveraging Redundancy in Attention with Reuse
    Transformers" (arXiv 2110.06821); Liao and Vargas 2024, "Beyond KV Caching: Shared Attention"
    (arXiv 2407.12866).
    """
    import torch

    if layer.previous is None:
        return torch.full((len(layer.call.z), layer.heads), torch.nan)
    overlaps = row_overlaps(layer, layer.previous, drop)
    best = overlaps.masked_fill(overlaps.isnan(), -1).amax(-1)
    return torch.where(best < 0, torch.nan, best)


LEAST = 0.01  # attention of a row beyond the first keys


def row_overlaps(
    layer: LayerCall, other: LayerCall, drop: int
) -> Float[Tensor, "prompt head other"]:
    """Return one minus the mean total variation distance of rows, for every pair of heads.

    NaN for pairs without a query that both count.
    """
    import torch

    shape = len(layer.call.z), layer.heads, other.heads
    total = torch.zeros(shape, dtype=torch.double, device=layer.call.z.device)
    number = torch.zeros_like(total)
    for rows, pattern, _ in layer.blocks():
        mine, some = _renormalised(pattern, drop)
        theirs, any_ = _renormalised(
            other.call.pattern(rows).double() * other.call.visible(rows), drop
        )
        for head in range(layer.heads):
            shared = torch.minimum(mine[:, head, None], theirs).sum(-1)
            both = some[:, head, None] & any_
            total[:, head] += (shared * both).sum(-1)
            number[:, head] += both.sum(-1)
    return torch.where(number > 0, total / number.clamp_min(1), torch.nan)


def _renormalised(pattern: Tensor, drop: int) -> tuple[Tensor, Tensor]:
    rest = pattern[..., drop:]
    mass = rest.sum(-1)
    return rest / mass[..., None].clamp_min(1e-300), mass > LEAST
