"""Low-pass energy of head outputs."""

from interp.heads.declaration import measurement


@measurement(
    unit="share of the energy",
    low=0.0,
    high=1.0,
    chance="1 / T for outputs without a common part, over T tokens",
)
def low_pass(layer):
    """Share of the energy of a head's outputs that is the same at every token.

    The squared norm of the mean of z over tokens times their number, over the sum of squared norms
    (the energy at frequency 0 of a Fourier transform along the tokens): 1 for a head that writes
    one vector everywhere, as uniform bidirectional attention does.

    Not for: comparing with 0: outputs of T unrelated tokens have 1 / T.

    Reference: Wang et al. 2022, "Anti-Oversmoothing in Deep Vision Transformers via the Fourier
    Domain Analysis" (arXiv 2203.05962).
    """
    import torch

    total = layer.z.square().sum((-2, -1))
    constant = layer.z.sum(-2).square().sum(-1) / layer.tokens
    return torch.where(total > 0, (constant / total.clamp_min(1e-300)).clamp(max=1.0), torch.nan)
