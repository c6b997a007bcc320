"""Numbers of directions: of keys and queries, of circuits, and of the weights of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from interp.core.declaration import like
from interp.heads.declaration import measurement, weights
from interp.model.calls.sites import circuit_sites

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


@measurement(unit="directions", low=1.0, requires=("qk",), end="low")
def key_rank(layer, *, share: float = 0.9):
    """Rank of a head's keys at 90 % of their variance.

    Principal components of the keys of one prompt (as they enter the scores); the smallest number
    whose variances sum to more than the share. Between 1 and d_head; keys without variance have no
    score. Heads that share keys share the score.

    Not for: prompts with fewer tokens than d_head, whose keys span at most their number minus one.

    Options:
        share: share of the variance.

    Reference: Singhania et al. 2024, "Loki: Low-rank Keys for Efficient Sparse Attention" (arXiv
    2406.02542; rank at 90 %). The published plots take an index that starts at 0, one less.
    """
    return centred_rank(layer.k, share)


@like(key_rank, requires=("turns",))
def key_rank_before_rotary(layer, *, share: float = 0.9):
    """Rank of a head's keys before rotary embedding at 90 % of their variance.

    Principal components of the keys of one prompt (as projected, before rotary embedding); the
    smallest number whose variances sum to more than the share. Between 1 and d_head; keys without
    variance have no score. Heads that share keys share the score.
    """
    return centred_rank(layer.before_turning("k"), share)


@like(key_rank)
def query_rank(layer, *, share: float = 0.9):
    """Rank of a head's queries at 90 % of their variance.

    Principal components of the queries of one prompt (as they enter the scores); the smallest
    number whose variances sum to more than the share. Between 1 and d_head; queries without
    variance have no score.

    Not for: prompts with fewer tokens than d_head, whose queries span at most their number minus
    one.
    """
    return centred_rank(layer.q, share)


@like(query_rank, requires=("turns",))
def query_rank_before_rotary(layer, *, share: float = 0.9):
    """Rank of a head's queries before rotary embedding at 90 % of their variance.

    Principal components of the queries of one prompt (as projected, before rotary embedding); the
    smallest number whose variances sum to more than the share. Between 1 and d_head; queries
    without variance have no score.
    """
    return centred_rank(layer.before_turning("q"), share)


LARGEST = 7.0  # log10 of the largest condition that float32 activations can show


def rank_at(singular: Float[Tensor, "*batch rank"], share: float) -> Float[Tensor, "*batch"]:
    """Return the smallest number of directions with more than a share of the squared sum.

    NaN where all singular values are 0.
    """
    energy = singular.double().square()
    total = energy.sum(-1)
    reached = energy.cumsum(-1) > share * total[..., None]
    number = (~reached).sum(-1) + 1
    return torch.where(total > 0, number.clamp(max=energy.shape[-1]).double(), torch.nan)


def centred_rank(x: Float[Tensor, "*batch token d"], share: float) -> Float[Tensor, "*batch"]:
    """Return the rank of centred rows that explains more than a share of their variance."""
    x = x - x.mean(-2, keepdim=True)
    scale = x.abs().amax((-2, -1), keepdim=True)
    singular = torch.linalg.svdvals(x / scale.clamp_min(1e-300))
    return rank_at(singular * (scale[..., 0] > 0), share)


def log_condition(x: Float[Tensor, "*batch row column"]) -> Float[Tensor, "*batch"]:
    """Return log10 of the largest singular value over the smallest, at most `LARGEST`.

    NaN for a matrix of zeros.
    """
    singular = torch.linalg.svdvals(x.double())
    first, last = singular[..., 0], singular[..., -1]
    condition = torch.log10(first / last.clamp_min(1e-300)).clamp(max=LARGEST)
    return torch.where(first > 0, condition, torch.nan)


def last_rows(layer: Any, number: int) -> Float[Tensor, "prompt head row key"]:
    """Return the pattern of the last queries, in float64: linear in the number of keys."""
    rows = slice(max(0, layer.tokens - number), layer.tokens)
    return layer.call.pattern(rows).double() * layer.call.visible(rows)


@weights(unit="directions", low=0.0, requires=("ov",), end="low")
def ov_directions(model, *, share: float = 0.9):
    """Rank of a head's OV circuit at 90 % of its squared singular values.

    The number of directions it reads and writes, counted where the spectrum has the share; between
    1 and d_head, 0 for a circuit of zeros. `ov_rank` is a smooth count of the same spectrum.

    Not for: finding out which directions these are.

    Options:
        share: share of the squared singular values.

    Reference: Singhania et al. 2024, "Loki" (arXiv 2406.02542), for the share of 90 %; this
    project, for circuits.
    """
    return _circuit_ranks(model, "OV", share)


@weights(unit="directions", low=0.0, requires=("qk",), end="low")
def qk_directions(model, *, share: float = 0.9):
    """Rank of a head's QK circuit at 90 % of its squared singular values.

    The number of directions its scores depend on, counted where the spectrum has the share; between
    1 and d_head, 0 for a circuit of zeros. `qk_rank` is a smooth count of the same spectrum.

    Not for: finding out which directions these are.

    Options:
        share: share of the squared singular values.

    Reference: Singhania et al. 2024, "Loki" (arXiv 2406.02542), for the share of 90 %; this
    project, for circuits.
    """
    return _circuit_ranks(model, "QK", share)


def _circuit_ranks(model: Any, circuit: str, share: float) -> dict[Any, Tensor]:
    sites = circuit_sites(model.sites)
    spectra = {site: getattr(model.weights_of(site), circuit).singular_values() for site in sites}
    return {site: rank_at(x, share).nan_to_num(0.0) for site, x in spectra.items()}


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
