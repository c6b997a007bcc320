"""Change of a head's output when a token is dropped from its attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers, target_rows
from interp.attribution.graph.streamed_patterns import FEW, NOTES, is_streamed, streamed
from interp.core.errors import CheckError
from interp.model.calls.call import repeat_kv
from interp_kernels.reductions import Rows

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site

SINK_FROM = 1e-4  # a larger deficit of a row sum is due to a sink; float32 rows miss 1 by 1e-6


@attribution(unit="value norm", signed=False, needs="patterns", softmax_only=True)
def attention_output_error(example: Example, *, stack: str = "") -> Scores:
    """Compute the change of the head outputs when a token is dropped and attention renormalised.

    For weight a, value v and output o it is `a / (1 - a) * |o - v|`, exactly the change of the
    output when the softmax omits the token; it is averaged over layers and heads, at the target's
    output position. If a head sees no other token, dropping it leaves an output of zero, and the
    error is the norm of the output.

    Not for: explaining an answer: it shows which entries a cache may drop, at one position, and
    does not depend on the target.

    Args:
        example: the input and its target.
        stack: name of the stack, if the model has several.

    Reference: Goel et al. 2025, "CAOTE: KV Caching through Attention Output Error based Token
    Eviction".
    """
    rows = torch.from_numpy(target_rows(example, example.sites(stack or None)[0].stack))
    some = rows.nonzero().flatten().tolist()
    if len(some) <= FEW and is_streamed(example, stack):

        def read(site: Site, call: Call, values: Mapping[str, Any]) -> Tensor:
            value = repeat_kv(call.v, site.n_heads)[0].double()
            weights = values["rows"][0].double().transpose(0, 1)
            return _of_layer(site, weights, value, call.z[0, :, some].double(), rows[some])

        layers = streamed(example, stack, lambda device: [Rows(tuple(some))], read)
        return Scores(torch.stack(layers).mean(0).cpu().numpy(), notes=dict(NOTES))
    sites, patterns = stored_layers(example, stack)
    held = example.capture(("v", "z"), stack=sites[0].stack)
    layers = []
    for site, pattern in zip(sites, patterns, strict=True):
        value = held["v", site.layer, site.stack][0].double()
        value = value.repeat_interleave(site.n_heads // site.n_kv_heads, 0)
        z = held["z", site.layer, site.stack][0].double()
        weights = pattern[:, some].double().transpose(0, 1)
        layers.append(_of_layer(site, weights, value, z[:, some], rows[some]))
    return Scores(torch.stack(layers).mean(0).cpu().numpy())


def _of_layer(
    site: Site,
    weights: Float[Tensor, "row head key_pos"],
    value: Float[Tensor, "head key_pos d_v"],
    z: Float[Tensor, "head row d_v"],
    shares: Float[Tensor, " row"],
) -> Float[Tensor, " key_pos"]:
    """Average the errors of one layer over heads, and weight those of its output positions."""
    mean_errors = torch.zeros(value.shape[1], dtype=torch.double, device=z.device)
    for row, weight in enumerate(weights):
        output = (weight[..., None] * value).sum(1)
        if not torch.allclose(output, z[:, row], rtol=1e-2, atol=1e-3 * float(z.abs().max())):
            raise CheckError(
                f"{site.name}: pattern times values does not equal the head outputs at a row, so "
                "the effect of dropping a token is not known; use another method"
            )
        mean_errors += shares[row] * errors(weight, value, output).mean(0)
    return mean_errors


def errors(
    weight: Float[Tensor, "head key_pos"],
    value: Float[Tensor, "head key_pos d_v"],
    output: Float[Tensor, "head d_v"],
) -> Float[Tensor, "head key_pos"]:
    """Compute the norm of the change of each head's output when its softmax omits one key.

    The remaining weight is summed, because `1 - weight` would be mostly rounding error for weights
    near 1.
    """
    total = weight.sum(-1, keepdim=True)
    sink = torch.where(1 - total > SINK_FROM, 1 - total, torch.zeros_like(total))
    scale = torch.where(sink > 0, torch.ones_like(total), total.clamp_min(1e-30))
    rest = (total - weight).clamp_min(0) / scale + sink
    others = (output[:, None] - weight[..., None] * value) / scale[..., None]
    without = torch.where(rest[..., None] > 0, others / rest.clamp_min(1e-30)[..., None], 0)
    return (without - output[:, None]).norm(dim=-1)
