"""Key norms against the attention that keys receive."""

from interp.heads.declaration import measurement


@measurement(
    unit="rank correlation",
    low=-1.0,
    high=1.0,
    requires=("qk", "self"),
    chance="0 for keys of one direction distribution and any norm",
    end="both",
)
def key_norm(layer):
    """Correlation of key norms with the attention that keys receive.

    Negative where short keys get more. A key's attention is its mean over the queries that see it,
    at least a quarter of all. Spearman's correlation over the keys of a prompt. Rotary embedding
    does not change norms; norms that differ by the rounding of the model's dtype alone are ties.

    Not for: models with a norm on keys (Qwen 3, Gemma 3, OLMo 2), which leaves almost no difference
    between norms.

    Reference: Devoto et al. 2024, "A Simple and Effective L2 Norm-Based Strategy for KV Cache
    Compression" (arXiv 2406.11430).
    """
    from interp.heads.geometry._received import (
        rank_correlation,
        received_per_query,
        rounding_of_keys,
    )

    norms = layer.k.norm(dim=-1)
    return rank_correlation(norms, received_per_query(layer), rounding_of_keys(layer) * norms)
