"""Eigenvalues of attention patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp.core.errors import PromptError

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall

LONGEST = 2048


def second_eigenvalue(layer: LayerCall) -> Float[Tensor, "prompt head"]:
    """Return the second largest absolute eigenvalue; the diagonal's, of a causal pattern.

    NaN for prompts of one token.
    """
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
