"""Attention on the top keys of the layer before."""

from interp.heads.declaration import measurement


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
