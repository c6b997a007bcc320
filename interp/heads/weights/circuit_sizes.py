"""Sizes and ranks of QK and OV circuits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.declaration import like
from interp.heads.declaration import weights
from interp.model.calls.sites import circuit_sites

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


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


@weights(unit="written per unit of stream", low=0.0, high=None, requires=("ov",))
def ov_norm(model):
    """Frobenius norm of a head's OV circuit: output size per unit of input.

    Weights are folded: they include the gain of the preceding norm, but not its division. The same
    holds for a norm after the output projection (Gemma 2, OLMo 2). A head can have large weights
    and attend to a token without content: an ablation shows its effect.

    Not for: ranking heads by effect: a head with large weights may attend to tokens without
    content.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    return {site: model.weights_of(site).OV.norm() for site in circuit_sites(model.sites)}


@weights(unit="directions", low=0.0, high=None, requires=("qk",))
def qk_rank(model, *, by_entropy: bool = False):
    """Effective rank of a head's QK circuit: the number of directions its scores depend on.

    The stable rank, `|M|_F^2 / |M|_2^2`: between 1 and d_head, d_head where all singular values are
    equal, 0 where there are none. It gives the number of directions, not which ones; a head with
    small weights can have full rank.

    Not for: finding out what a head attends to: a rank counts directions without identifying them.

    Options:
        by_entropy: the exponential of the entropy of the singular values' shares instead, which
            counts weak directions more.

    Reference: Rudelson and Vershynin 2007, "Sampling from Large Matrices" (stable rank); Roy and
    Vetterli 2007, "The Effective Rank" (entropy).
    """
    circuits = {site: model.weights_of(site).QK for site in circuit_sites(model.sites)}
    return {site: effective_rank(c.singular_values(), by_entropy) for site, c in circuits.items()}


@like(qk_rank, requires=("ov",))
def ov_rank(model, *, by_entropy: bool = False):
    """Effective rank of a head's OV circuit: the number of directions it reads and writes.

    The stable rank, `|M|_F^2 / |M|_2^2`: between 1 and d_head, d_head where all singular values are
    equal, 0 where there are none. It gives the number of directions, not which ones; a head with
    small weights can have full rank.

    Not for: finding out which directions are written, or how strongly.
    """
    circuits = {site: model.weights_of(site).OV for site in circuit_sites(model.sites)}
    return {site: effective_rank(c.singular_values(), by_entropy) for site, c in circuits.items()}


def effective_rank(values: Float[Tensor, "head rank"], by_entropy: bool) -> Float[Tensor, "head"]:
    """Compute the effective rank from descending singular values; 0 if all are zero."""
    if not by_entropy:
        squares = values.square()
        return squares.sum(-1) / squares[..., 0].clamp_min(1e-300)
    shares = values / values.sum(-1, keepdim=True).clamp_min(1e-300)
    rank = (-(shares.clamp_min(1e-300).log() * shares).sum(-1)).exp()
    return rank * (values[..., 0] > 0)
