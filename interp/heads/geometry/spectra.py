"""Gaps and condition of the spectra of patterns and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.errors import PromptError
from interp.heads.declaration import measurement

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


@measurement(unit="one minus an eigenvalue", low=0.0, high=1.0, requires=("self",))
def spectral_gap(layer):
    """Spectral gap of a pattern: one minus its second largest absolute eigenvalue.

    1 if all rows are equal, 0 if the pattern is the identity. The eigenvalues of a causal pattern
    are its diagonal, the attention of each token to itself, so there it depends on nothing else:
    compare `singular_gap`.

    Not for: bidirectional prompts beyond 2,048 tokens, which are refused: eigenvalues need the
    whole pattern.

    Reference: Nahshan et al. 2024, "Linear Log-Normal Attention with Unbiased Concentration" (arXiv
    2311.13541).
    """
    return 1 - second_eigenvalue(layer)


@measurement(unit="share of the first singular value", low=0.0, high=1.0)
def singular_gap(layer, *, rows: int = 64):
    """One minus the second singular value of a pattern over the first, for its last query rows.

    1 if all rows are equal (the pattern mixes tokens at once), 0 if two directions are equally
    strong. Unlike eigenvalues, singular values of a causal pattern depend on all of its entries.

    Not for: prompts of one token, which have no second singular value.

    Options:
        rows: number of last queries, so that memory stays linear in the length.

    Reference: this project; for causal patterns in place of the gap of `spectral_gap`.
    """
    import torch

    from interp.heads.geometry.projection_ranks import last_rows

    singular = torch.linalg.svdvals(last_rows(layer, rows))
    if singular.shape[-1] < 2:
        return torch.full(singular.shape[:-1], torch.nan)
    gap = 1 - singular[..., 1] / singular[..., 0].clamp_min(1e-300)
    return torch.where(singular[..., 0] > 0, gap, torch.nan)


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
    from interp.heads.geometry.projection_ranks import log_condition

    return log_condition(layer.z)


@measurement(unit="log10 of the condition number", low=0.0, high=7.0, requires=("ov",))
def block_condition(layer):
    """Condition number of what all heads of a layer write together, as its logarithm to base 10.

    The sum over heads of what they add to the residual stream (tokens by d_model), without the
    stream itself; every head of the layer has this score. 7, the resolution of float32, also stands
    for infinity.

    Not for: telling heads of one layer apart: see `output_condition`.

    Reference: Ji et al. 2025, "Always Skip Attention" (arXiv 2505.01996).
    """
    from interp.heads.geometry.projection_ranks import log_condition

    written = layer.added().sum(2)
    return log_condition(written)[:, None].expand(-1, layer.heads)


@measurement(unit="directions", low=1.0, end="low")
def pattern_rank(layer, *, rows: int = 64):
    """Effective rank of a head's attention pattern over its last query rows.

    The exponential of the entropy of the singular values' shares: 1 if all rows are equal, the
    number of rows if they attend to different tokens each.

    Not for: comparing prompts of different lengths; the largest possible rank is their number of
    rows.

    Options:
        rows: number of last queries, so that memory stays linear in the length.

    Reference: Roy and Vetterli 2007, "The Effective Rank"; of attention, Bhojanapalli et al. 2020,
    "Low-Rank Bottleneck in Multi-head Attention Models".
    """
    import torch

    from interp.heads.geometry.projection_ranks import last_rows
    from interp.heads.weights.circuit_sizes import effective_rank

    singular = torch.linalg.svdvals(last_rows(layer, rows))
    return torch.where(singular[..., 0] > 0, effective_rank(singular, True), torch.nan)


LONGEST = 2048


def second_eigenvalue(layer: LayerCall) -> Float[Tensor, "prompt head"]:
    """Return the second largest absolute eigenvalue; the diagonal's, of a causal pattern.

    NaN for prompts of one token.
    """
    import torch

    if layer.tokens < 2:
        return torch.full((len(layer.call.z), layer.heads), torch.nan)
    if layer.site.causal:
        from interp_kernels.reductions import Diagonal

        sizes = layer.reduce(Diagonal((0,)))[..., 0].double()
    else:
        if layer.tokens > LONGEST:
            raise PromptError(
                f"spectral_gap: {layer.site.name} is not causal and the prompt has "
                f"{layer.tokens} tokens, more than {LONGEST}; use singular_gap or shorter prompts"
            )
        whole = layer.call.pattern().double() * layer.call.visible()
        sizes = torch.linalg.eigvals(whole).abs()
    return sizes.sort(-1, descending=True).values[..., 1].clamp(max=1.0)
