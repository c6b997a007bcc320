"""Persistence of the top keys from query to query."""

from interp.heads.declaration import measurement


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
