"""Size of QK circuits."""

from interp.heads.declaration import weights


@weights(unit="score per squared unit of stream", low=0.0, high=None, requires=("qk",))
def qk_norm(model):
    """How strongly a head's scores depend on the stream: the Frobenius norm of its QK circuit.

    Folded weights: the gain of the norm before is part of them, what it divides by is not.
    The factor on q·k (1/sqrt(d_head) in most families) is part of it too. With rotary positions
    it is the circuit of distance zero. Biases and position terms are left out. Where queries or
    keys pass a norm of their own (Qwen 3, Gemma 3), what that norm divides by is left out as well:
    compare heads then by `qk_rank`, not by size.

    Not for: comparing models with and without a norm of queries and keys, whose scale it leaves
    out.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    return {site: model.weights_of(site).QK.norm() for site in model.sites}
