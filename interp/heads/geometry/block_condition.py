"""Condition number of the output of an attention block."""

from interp.heads.declaration import measurement


@measurement(unit="log10 of the condition number", low=0.0, high=7.0, requires=("ov",))
def block_condition(layer):
    """Condition number of what all heads of a layer write together, as its logarithm to base 10.

    The sum over heads of z W_O (tokens by d_model), without the residual stream; every head of the
    layer has this score. 7, the resolution of float32, also stands for infinity.

    Not for: telling heads of one layer apart: see `output_condition`.

    Reference: Ji et al. 2025, "Always Skip Attention" (arXiv 2505.01996).
    """
    from interp.heads.geometry._spectra import log_condition

    written = (layer.z @ layer.W_O).sum(1)
    return log_condition(written)[:, None].expand(-1, layer.heads)
