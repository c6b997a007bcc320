"""Decomposition of the stream after attention into one vector per source token.

With the parts of the head output, f^h(x_j) = v_j^h W_O^h, and the residual, the stream after
attention at query i is

    sum_j T_ij + rest_i,    T_ij = sum_h A_ij^h f^h(x_j) + [i = j] x_i

where `rest` holds the bias of the output projection. The bias of the values is part of the values
and so belongs to the tokens. If a norm follows the sum (BERT), its scale is fixed at that of the
true sum, which makes it linear, and T are the parts of its output. In pre-norm blocks nothing
follows the sum. A norm between projection and sum (Gemma 2, OLMo 2) is treated in the same way.
Every layer is compared with the tensors of the run; if its parts do not add up to them, an error
names the layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.roles import NormRole, close, norm_role
from interp.core.errors import OptionError, UnreadableAttention
from interp.model.calls.call import precise, repeat_kv
from interp.model.calls.sites import Site
from interp.model.locate.head_outputs import head_outputs, writing_weights
from interp.model.locate.streams import unavailable

if TYPE_CHECKING:
    from interp.attribution.declaration import Scores
    from interp.attribution.example import Example
    from interp.model.capture import ActivationCache

SourceParts = Float[Tensor, "query_pos source d_model"]
MixingWeights = Float[Tensor, "query_pos source"]


@dataclass(frozen=True, eq=False)
class LayerParts:
    """Stream after the attention of one layer: a part per source token, the rest, and their sum.

    Args:
        site: the attention layer.
        pre: stream that enters the block.
        attention: parts that attention alone writes, before the residual and any norm of the sum.
        parts: parts of the source tokens, with the residual and after any norm of the sum.
        rest: part that belongs to no source token, such as biases.
        whole: stream of the run, to which parts and rest add up.
        error: largest absolute difference between their sum and `whole`.
    """

    site: Site
    pre: Float[Tensor, "query_pos d_model"]
    attention: SourceParts
    parts: SourceParts
    rest: Float[Tensor, "query_pos d_model"]
    whole: Float[Tensor, "query_pos d_model"]
    error: float


def layers(example: Example, stack: str = "") -> Iterator[LayerParts]:
    """Decompose the stream after attention, one layer at a time (n*n*d_model numbers each)."""
    sites = one_stack(example, stack)
    cache = _captured(example, sites)
    for site in sites:
        yield _layer(example, site, cache)


def block_layers(example: Example, stack: str = "") -> Iterator[LayerParts]:
    """Decompose the output of every block: `whole` is that output, and `rest` includes the MLP."""
    sites = one_stack(example, stack)
    cache = _captured(example, sites)
    for site in sites:
        yield _with_mlp(example, _layer(example, site, cache), cache)


def one_stack(example: Example, stack: str) -> list[Site]:
    """Return the attention layers of the one stack between the tokens and the outputs."""
    if example.model.kind == "encoder-decoder":
        raise OptionError(
            "this method needs a single stack from the tokens to the outputs; for an "
            "encoder-decoder use chefer or a gradient method"
        )
    return example.sites(stack or None)


def _captured(example: Example, sites: Sequence[Site]) -> ActivationCache:
    for site in sites:
        for name in ("resid_pre", "attn_out", "resid_post"):
            if name not in site.streams:
                raise UnreadableAttention(f"{site.name} has no {name}: {unavailable(site, name)}")
        if site.gated:
            raise UnreadableAttention(
                f"{site.name}: the head output is gated before the output projection, so a "
                "source's part depends on more than its value; use a gradient method"
            )
    # parallel blocks have no stream between attention and MLP
    names = ["pattern", "v", "resid_pre", "attn_out", "resid_post"]
    names += [n for n in ("resid_mid", "mlp_out") if all(n in s.streams for s in sites)]
    return example.capture(names, stack=sites[0].stack)


def _layer(example: Example, site: Site, cache: ActivationCache) -> LayerParts:
    where = site.layer, site.stack
    pattern, v = cache["pattern", *where][0], precise(cache["v", *where][0])
    v = repeat_kv(v[None], site.n_heads)[0]
    stream, dtype = precise(cache["attn_out", *where][0]), cache.logits.dtype
    z = torch.einsum("hqk,hkv->qhv", pattern.to(v), v)
    outputs = head_outputs(writing_weights(example.model, site), z, stream)
    attention = torch.zeros(*pattern.shape[1:], stream.shape[-1], device=v.device, dtype=v.dtype)
    for h in range(site.n_heads):
        read = outputs.of([h]).unscaled(v[h][:, None])[:, 0]
        attention += pattern[h].to(v)[..., None] * read
    if outputs.scale is not None:
        attention = attention * outputs.scale.to(attention)[:, None, None]
    rest = outputs.of_no_head.to(attention).expand(attention[:, 0].shape)
    name = f"{site.name} ({site.module})"
    wrong = f"{name}: parts do not add up to"
    close(attention.sum(1) + rest, stream.to(dtype), f"{wrong} the output of attention")
    pre = precise(cache["resid_pre", *where][0])
    parts = attention.clone()
    parts[torch.arange(len(pre)), torch.arange(len(pre))] += pre
    mid = site.streams.get("resid_mid")
    if mid is None or ("resid_mid", site.stack, site.layer) not in cache.values:
        whole = pre + stream  # parallel attention and MLP: there is no stream between them
    else:
        whole = precise(cache["resid_mid", *where][0])
        role = _norm(example, mid.module, whole) if mid.side == "out" else None
        if role is not None:
            parts, rest = through(role, parts, rest, whole.to(dtype))
    error = close(parts.sum(1) + rest, whole.to(dtype), f"{wrong} the stream after it")
    return LayerParts(site, pre, attention, parts, rest, whole, error)


def through(
    role: NormRole, parts: SourceParts, rest: Float[Tensor, "query_pos d_model"], y: Tensor
) -> tuple[SourceParts, Float[Tensor, "query_pos d_model"]]:
    """Apply a norm to parts and rest, with its scale fixed at that of their sum."""
    _, scale = role.frozen(parts.sum(1) + rest, y)
    bias = role.norm.bias.to(rest).reshape(role.shape)
    return scale[:, None] * role.direction(parts), scale * role.direction(rest) + bias


def _norm(example: Example, name: str, like: Tensor) -> NormRole | None:
    return norm_role(example.model.module.get_submodule(name), name, like)


def _with_mlp(example: Example, layer: LayerParts, cache: ActivationCache) -> LayerParts:
    site, where = layer.site, (layer.site.layer, layer.site.stack)
    name = f"{site.name} ({site.module})"
    if ("mlp_out", site.stack, site.layer) not in cache.values:
        raise UnreadableAttention(f"{name} has no mlp_out: {unavailable(site, 'mlp_out')}")
    mlp = precise(cache["mlp_out", *where][0])
    true = cache["resid_post", *where][0]
    post = precise(true)
    parts, rest = layer.parts, layer.rest + mlp
    role = _norm_of_sum(example, site, layer.whole + mlp, post)
    if role is not None:
        parts, rest = through(role, parts, rest, true)
    error = close(parts.sum(1) + rest, true, f"{name}: parts and MLP do not add up to its output")
    return LayerParts(site, layer.pre, layer.attention, parts, rest, post, max(error, layer.error))


def _norm_of_sum(example: Example, site: Site, total: Tensor, post: Tensor) -> NormRole | None:
    """Find the norm of the block that turns a sum into its output; None if no norm follows."""
    if torch.allclose(total, post, rtol=1e-3, atol=1e-4 * float(post.abs().max())):
        return None
    block = site.streams["resid_post"].module
    for inner, module in example.model.module.get_submodule(block).named_modules():
        if any(True for _ in module.children()):
            continue
        role = norm_role(module, f"{block}.{inner}", total)
        if role is None:
            continue
        with torch.no_grad():
            normalised_sum = precise(module(total.to(example.model.dtype)))
        if torch.allclose(normalised_sum, post, rtol=1e-2, atol=1e-3 * float(post.abs().max())):
            return role
    return None


# --- from layers to one matrix --------------------------------------------------------------------


def row_normalised(mixing: MixingWeights) -> MixingWeights:
    """Scale each row to sum 1; a row of zeros becomes that of the identity."""
    size = mixing.sum(-1, keepdim=True)
    eye = torch.eye(len(mixing), dtype=mixing.dtype, device=mixing.device)
    return torch.where(size > 0, mixing / size.clamp_min(torch.finfo(size.dtype).tiny), eye)


def scored(
    example: Example, mixings: Sequence[MixingWeights], aggregate: str, **notes: float | str
) -> Scores:
    """Combine the row-normalised mixing of every layer into one score per source."""
    from interp.attribution.declaration import Scores

    rows = [row_normalised(m.double().cpu()) for m in mixings]
    if aggregate == "rollout":
        matrix = rows[0]
        for row in rows[1:]:
            matrix = row @ matrix
    elif aggregate in ("mean", "last"):
        matrix = torch.stack(rows).mean(0) if aggregate == "mean" else rows[-1]
    else:
        raise OptionError(f"unknown aggregate={aggregate!r}; known: rollout, mean, last")
    weights = example.rows.to(matrix)
    return Scores((weights @ matrix).numpy(), matrix.numpy(), notes=notes)
