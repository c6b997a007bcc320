"""Contributions of heads to the residual stream: the one place that multiplies head outputs by W_O.

The heads of an attention add `z_h W_O` of the head, with a bias that belongs to none. Some families
rescale this sum before it is added: by a factor (Granite), by a gain per entry (layer scale), or by
a norm (Gemma 2 and 3, OLMo 2 and 3, GLM-4, EXAONE 4). A norm is not linear, but with its scale held
at the value that it has in a run it is, and then the parts of the heads and the part of no head sum
to what arrives in the stream. `HeadWeights.added` is the map without that scale, where there is no
run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.calls.sites import POOLING
from interp.model.hooks.inference import part_output
from interp.model.locate.find_sites import output_projection
from interp.model.locate.layout import Layout, Writing
from interp.model.locate.norms import frozen_scale
from interp.model.locate.streams import unavailable
from interp.model.locate.weights import HeadWeights, head_weights

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.transformer import Transformer

_UNREAD = "only what heads add to the stream was located"


@dataclass(frozen=True, eq=False)
class HeadOutputs:
    """Linear map from the outputs of the heads of one attention to what they add to the stream.

    Args:
        matrix: W_O by head, with the norm's centring and gain, a gain per entry, or a factor.
        bias: bias of the projection, through the same.
        shift: bias of the norm, times the factor.
        scale: scale of the norm at every position of the run; None without a norm.
    """

    matrix: Float[Tensor, "head d_v d_model"]
    bias: Float[Tensor, " d_model"]
    shift: Float[Tensor, " d_model"]
    scale: Float[Tensor, "*at"] | None

    def of(self, heads: Sequence[int]) -> HeadOutputs:
        """Return the map of some heads."""
        return replace(self, matrix=self.matrix[list(heads)])

    def at(self, query: int) -> HeadOutputs:
        """Return the map at one query position of every prompt, an axis of length 1."""
        return self if self.scale is None else replace(self, scale=self.scale[:, query, None])

    def added(self, outputs: Float[Tensor, "*at head d_v"]) -> Float[Tensor, "*at head d_model"]:
        """Return what each head adds to the stream."""
        added = self.unscaled(outputs)
        return added if self.scale is None else added * self.scale.to(added)[..., None, None]

    def mean(
        self, outputs: Float[Tensor, "batch pos head d_v"]
    ) -> Float[Tensor, "batch head d_model"]:
        """Return the mean over positions of what each head adds."""
        if self.scale is not None:
            outputs = outputs * self.scale.to(outputs)[..., None, None]
        return self.unscaled(outputs.mean(1))

    def total(self, outputs: Float[Tensor, "*at head d_v"]) -> Float[Tensor, "*at d_model"]:
        """Return what the attention adds: all heads, and what belongs to none."""
        total = torch.einsum("...hv,hvm->...m", outputs, self.matrix.to(outputs))
        total = total if self.scale is None else total * self.scale.to(total)[..., None]
        return total + self.of_no_head.to(total)

    def unscaled(self, outputs: Float[Tensor, "*n head d_v"]) -> Float[Tensor, "*n head d_model"]:
        """Return what each head would add if the norm had a scale of 1."""
        return torch.einsum("...hv,hvm->...hm", outputs, self.matrix.to(outputs))

    def along(self, direction: Float[Tensor, "*at d_model"]) -> Float[Tensor, "*at head d_v"]:
        """Return the direction of each head's output that is added along one of the stream."""
        along = torch.einsum("...m,hvm->...hv", direction, self.matrix.to(direction))
        return along if self.scale is None else along * self.scale.to(along)[..., None, None]

    @property
    def of_no_head(self) -> Float[Tensor, "*at d_model"]:
        """Part of the attention's output that belongs to no head: biases."""
        if self.scale is None:
            return self.bias + self.shift
        return self.scale.to(self.bias)[..., None] * self.bias + self.shift


def head_outputs(
    weights: HeadWeights,
    outputs: Float[Tensor, "*at head d_v"] | None,
    attn_out: Float[Tensor, "*at d_model"] | None = None,
    *,
    gated: bool = False,
) -> HeadOutputs:
    """Return the map from outputs of heads to the stream, with a norm's scale as it is in a run."""
    site, layout = weights.site, weights.layout.o
    if isinstance(layout, str):
        raise UnreadableAttention(layout)
    if site.gated and not gated:
        raise UnreadableAttention(
            f"{site.name} ({site.module}): z is gated entry by entry before the output projection, "
            "so z does not give what a head adds to the stream; capture result"
        )
    norm = weights.output_norm
    matrix, bias = weights.added, weights.added_bias
    shift, scale = torch.zeros_like(bias), None
    if norm is not None:
        if outputs is None:
            raise UnreadableAttention(
                f"{site.name} ({site.module}): {layout.after} stands between the heads' outputs "
                "and the stream, so what one head adds depends on the others"
            )
        module = weights.module.get_submodule(layout.after)  # type: ignore[arg-type]
        wide = torch.promote_types(outputs.dtype, matrix.dtype)
        projection = weights.W_O.to(outputs.device, wide)
        whole = torch.einsum("...hv,hvm->...m", outputs.to(wide), projection) + weights.b_O
        if attn_out is None:
            dtype = next(p.dtype for p in weights.module.parameters() if p.is_floating_point())
            with torch.no_grad():
                given = whole.to(dtype).reshape(1, -1, whole.shape[-1])
                returned = part_output(module, given).reshape(whole.shape)
        else:
            returned = attn_out / layout.scale
        scale = frozen_scale(norm, whole, returned)
        shift = norm.bias.to(bias) * layout.scale
    return HeadOutputs(matrix, bias, shift, scale)


def outputs_before_norm(weights: HeadWeights) -> HeadOutputs:
    """Return the map from outputs of heads to their parts of the sum that a norm reads."""
    return HeadOutputs(weights.W_O, weights.b_O, torch.zeros_like(weights.b_O), None)


def of_no_head(
    weights: HeadWeights,
    results: Float[Tensor, "*at head d_model"],
    attn_out: Float[Tensor, "*at d_model"],
) -> Float[Tensor, "*at d_model"]:
    """Return what an attention added that belongs to no head, from what its heads and it added.

    It is computed from biases, not as the rest, so that a sum of all parts can be checked.
    """
    layout = weights.layout.o
    if isinstance(layout, str):
        raise UnreadableAttention(layout)
    bias = weights.added_bias.double()
    norm = weights.output_norm
    if norm is None:
        return bias.expand(attn_out.shape)
    shift = norm.bias.to(bias) * layout.scale
    rest = attn_out.double() - shift - results.double().sum(-2)
    scale = (rest @ bias) / bias.square().sum().clamp_min(1e-300)  # of the norm, on these positions
    return scale[..., None] * bias + shift


def writing_weights(model: Transformer, site: Site) -> HeadWeights:
    """Return the weights of an attention for what its heads add to the stream.

    Where the output of the projection itself is added, no run is needed to locate other matrices.
    """
    out = site.streams.get("attn_out")
    if site.projection is None:
        output_projection(model.module, site)  # raises the reason
    if out is None and site.stack != POOLING:
        raise UnreadableAttention(
            f"{site.name} ({site.module}): what a head adds to the stream is not known, since what "
            f"its attention adds was not found: {unavailable(site, 'attn_out')}; capture z"
        )
    if out is not None and out.module != site.projection:
        return head_weights(model, site)
    direct = Writing(None, 1.0 if out is None else out.scale)
    return HeadWeights(site, model.module, Layout(_UNREAD, _UNREAD, _UNREAD, direct, None))


def read_for_run(weights: HeadWeights) -> bool:
    """Read weights before a run, and return whether a norm follows the output projection.

    An adapter's matrix, a norm and a gain are found by running them, which hooks would see.
    """
    normed = weights.output_norm is not None
    _ = weights.added, weights.added_bias, weights.W_O if normed else None
    return normed
