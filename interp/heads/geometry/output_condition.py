"""Condition number of head outputs."""

from interp.heads.declaration import measurement


@measurement(unit="log10 of the condition number", low=0.0, high=7.0)
def output_condition(layer):
    """Condition number of a head's outputs over a prompt, as its logarithm to base 10.

    The largest singular value of z (tokens by d_v) over the smallest; 0 for outputs of equal size
    in all directions. 7, the resolution of float32, also stands for infinity: outputs of lower
    rank, such as those of a head that writes the same at every token.

    Not for: comparing prompts shorter than d_v with longer ones: a matrix with fewer rows has fewer
    singular values.

    Reference: Ji et al. 2025, "Always Skip Attention" (arXiv 2505.01996; there of the block's
    output: see `block_condition`).
    """
    from interp.heads.geometry._spectra import log_condition

    return log_condition(layer.z)
