"""Persistence of the top keys that move on with the query."""

from interp.heads.declaration import measurement


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
