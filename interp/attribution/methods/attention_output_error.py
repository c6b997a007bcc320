"""What a head's output would lose with a token."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers, target_rows
from interp.core.errors import CheckError

SINK_FROM = 1e-4  # what a row lacks of 1, above which a sink took it; float32 rows miss by 1e-6


@attribution(unit="value norm", signed=False, needs="patterns")
def attention_output_error(example: Example, *, stack: str = "") -> Scores:
    """How far a head's output moves if a token is dropped and the rest attended to in its place.

    For weight a, value v and output o it is `a / (1 - a) * |o - v|`, exactly the change of the
    output when the softmax runs without the token; mean over layers and heads, at the row that the
    target reads. Where the token is all that a head sees, dropping it leaves an output of zero, and
    the error is the output's own norm.

    Not for: explaining an answer: it is about what a cache may drop, at one row, and knows no
    target.

    Args:
        stack: where a model has several.

    Reference: Goel et al. 2025, "CAOTE: KV Caching through Attention Output Error based Token
    Eviction".
    """
    sites, patterns = stored_layers(example, stack)
    held = example.capture(("v", "z"), stack=sites[0].stack)
    rows = torch.from_numpy(target_rows(example, sites[0].stack))
    layers = []
    for site, pattern in zip(sites, patterns, strict=True):
        value = held["v", site.layer, site.stack][0].double()
        value = value.repeat_interleave(site.n_heads // site.n_kv_heads, 0)
        z = held["z", site.layer, site.stack][0].double()
        found = torch.zeros(len(example), dtype=torch.double, device=z.device)
        for row in rows.nonzero().flatten().tolist():
            weight = pattern[:, row].double()
            made = (weight[..., None] * value).sum(1)
            if not torch.allclose(made, z[:, row], rtol=1e-2, atol=1e-3 * float(z.abs().max())):
                raise CheckError(
                    f"{site.name}: pattern times values is not the heads' output at row {row}, so "
                    "it tells nothing of what dropping a token does"
                )
            found += rows[row] * errors(weight, value, made).mean(0)
        layers.append(found)
    return Scores(torch.stack(layers).mean(0).cpu().numpy())


def errors(
    weight: Float[Tensor, "head key_pos"],
    value: Float[Tensor, "head key_pos d_v"],
    output: Float[Tensor, "head d_v"],
) -> Float[Tensor, "head key_pos"]:
    """Norm of the change of each head's output when one key is left out of its softmax.

    The rest is summed rather than taken as `1 - weight`, which is nothing but rounding error once
    the weight is near 1.
    """
    total = weight.sum(-1, keepdim=True)
    sink = torch.where(1 - total > SINK_FROM, 1 - total, torch.zeros_like(total))
    scale = torch.where(sink > 0, torch.ones_like(total), total.clamp_min(1e-30))
    rest = (total - weight).clamp_min(0) / scale + sink
    others = (output[:, None] - weight[..., None] * value) / scale[..., None]
    without = torch.where(rest[..., None] > 0, others / rest.clamp_min(1e-30)[..., None], 0)
    return (without - output[:, None]).norm(dim=-1)
