"""Size of QK circuits."""

from interp.heads.declaration import weights
from interp.model.locate.sites import circuit_sites


@weights(unit="score per squared unit of stream", low=0.0, high=None, requires=("qk",))
def qk_norm(model):
    """Frobenius norm of a head's QK circuit: sensitivity of its scores to the residual stream.

    Weights are folded: they include the gain of the preceding norm, but not its division. The
    factor on q·k (1/sqrt(d_head) in most families) is included. With rotary positions it is the
    circuit of distance zero. Biases and position terms are ignored. If queries or keys have their
    own norm (Qwen 3, Gemma 3), its division is ignored as well: compare such heads by `qk_rank`,
    not by size.

    Not for: comparing models with and without a norm of queries and keys, whose scale is ignored.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    return {site: model.weights_of(site).QK.norm() for site in circuit_sites(model.sites)}
