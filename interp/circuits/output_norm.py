"""Norm through which the summed outputs of a layer's heads enter the residual stream.

Gemma 2 and 3, OLMo 2 and 3, GLM-4 and EXAONE 4 add `norm(sum of heads + bias)` to the stream, so
that what one head adds depends on the others. A head then writes its part of the sum, and what the
layer adds is computed from the sum again wherever a part of it is exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from interp.attribution.roles import NormRole
from interp.model.hooks.inference import part_output

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class OutputNorm:
    """Norm between the output projection of one layer and the stream.

    Args:
        order: Number of the graph's layer.
        heads: Numbers of the layer's heads among the writers.
        module: The norm.
        role: Its gain, bias and centring.
        bias: Bias of the output projection, which belongs to no head.
        factor: Factor of the norm's output, as it is added to the stream.
    """

    order: int
    heads: slice
    module: nn.Module
    role: NormRole
    bias: Float[Tensor, " d_model"]
    factor: float

    def added(self, total: Float[Tensor, "*at d_model"]) -> Float[Tensor, "*at d_model"]:
        """Return what the layer's attention adds to the stream, given the sum of its heads."""
        return part_output(self.module, total + self.bias.to(total)).to(total) * self.factor

    def first_order(
        self,
        change: Float[Tensor, "*at head d_model"],
        total: Float[Tensor, "*at d_model"],
        *,
        frozen: bool,
    ) -> Float[Tensor, "*at head d_model"]:
        """Return the change of the stream to first order in changes of what heads write.

        The derivative is taken where the heads sum to `total`; a frozen scale is a constant.
        """
        given = total + self.bias.to(total)
        if frozen:
            with torch.no_grad():
                scale = self.role.frozen(given, part_output(self.module, given))[1]
            return self.role.direction(change) * scale[..., None, :] * self.factor
        at = given[..., None, :].expand_as(change).contiguous()
        _, added = torch.autograd.functional.jvp(partial(part_output, self.module), at, change)
        assert isinstance(added, Tensor)
        return added * self.factor
