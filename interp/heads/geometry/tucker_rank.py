"""Tucker rank of the heads of a layer."""

from interp.heads.declaration import weights
from interp.model.calls.sites import circuit_sites


@weights(unit="directions", low=0.0, requires=("qk", "ov"), end="low")
def tucker_rank(model, *, share: float = 0.9):
    """Shared directions of the residual stream that hold 90 % of a head's weights.

    The weights of a layer, with the norm before it folded in, are a tensor of d_model by d_head by
    four (W_Q, W_K, W_V, W_O transposed) by heads. Its factor matrix along d_model is shared by all
    heads (higher-order SVD, ordered by singular value); the score is the number of its leading
    columns that hold more than the share of the head's squared weights. Large for a head that uses
    other directions than its layer.

    Not for: comparing layers of models of different width; the largest possible rank is d_model.

    Options:
        share: share of the squared weights.

    Reference: Gu et al. 2025, "TensorLLM: Tensorising Multi-Head Attention for Enhanced Reasoning
    and Compression in LLMs" (arXiv 2501.15674).
    """
    import torch

    from interp.heads.geometry._spectra import rank_at

    ranks = {}
    for site in circuit_sites(model.sites):
        w = model.weights_of(site).folded
        shared = [site.kv_head(h) for h in range(site.n_heads)]
        read = torch.cat([w.W_Q, w.W_K[shared], w.W_V[shared], w.W_O.mT], -1).double()
        columns = read.transpose(0, 1).flatten(1)
        factor = torch.linalg.eigh(columns @ columns.mT).eigenvectors.flip(-1)
        core = (factor.mT @ read).norm(dim=-1)
        ranks[site] = rank_at(core, share).nan_to_num(0.0)
    return ranks
