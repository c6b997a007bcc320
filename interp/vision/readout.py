"""Map from the last stream of an image tower to its class logits or its image embedding.

A readout is found by trying: each norm, way of pooling and final matrix of the model, until their
composition gives what the model computes. Every nonlinear step is held at its value on the image
(the scale of a norm, the ratio of an activation, the pattern of a pooling attention), so that the
output is a sum over what was written to the stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.model.hooks.inference import part_output
from interp.model.inputs import probe_inputs
from interp.model.locate.linear import linear_map
from interp.model.locate.norms import Norm, read_norm
from interp.vision.images import batches_of, patch_grid, vision_sites

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

POOLS = ("class token", "mean of patches", "mean of tokens", "class token and mean of patches")
_CLOSE = 1e-4  # relative to the largest output; float32 sums over a few layers
_TINY = 1e-30


@dataclass(frozen=True, eq=False)
class ImageReadout:
    """Steps from the last stream to the output of a model.

    Args:
        model: the model.
        norm: path of the final norm; None without one.
        norm_first: True if the norm acts on every token before pooling.
        pool: one of `POOLS`, or the path of a pooling attention.
        first: index of the first token that counts as a patch.
        ends: modules after pooling: matrices and activations.
        kind: "logits" of classes, or "embedding".
    """

    model: Model
    norm: str | None
    norm_first: bool
    pool: str
    first: int
    ends: tuple[str, ...]
    kind: str

    def module(self, name: str) -> Any:
        """Return a module of the model by its path."""
        return self.model.module.get_submodule(name)

    @property
    def pooled_by(self) -> str:
        """Description of the pooling of tokens into one vector."""
        return self.pool if self.pool in POOLS else f"attention of {self.pool}"

    def pools_by(self, site: Site) -> bool:
        """Return True if this attention pools the tokens."""
        return self.pool not in POOLS and site.module.startswith(f"{self.pool}.")

    @property
    def only_class_token(self) -> bool:
        """True if the output reads the first token alone."""
        return self.pool == "class token"

    def __call__(self, stream: Float[Tensor, "image token d"]) -> Float[Tensor, "image out"]:
        """Compute the output from a stream, by the model's own modules."""
        x = stream
        if self.norm is not None and self.norm_first:
            x = self.module(self.norm)(x)
        x = (
            self.module(self.pool)(x)
            if self.pool not in POOLS
            else _pooled(x, self.pool, self.first)
        )
        if self.norm is not None and not self.norm_first:
            x = self.module(self.norm)(x)
        for name in self.ends:
            x = self.module(name)(x)
        return x

    def freeze(self, stream: Float[Tensor, "image token d"]) -> FrozenReadout:
        """Hold every nonlinear step at its value on these streams."""
        return FrozenReadout(self, stream)


class FrozenReadout:
    """Affine map from what is written to a stream to the output, for each of some images.

    Args:
        readout: the readout.
        stream: the last streams of the images, all tokens.
    """

    def __init__(self, readout: ImageReadout, stream: Float[Tensor, "image token d"]) -> None:
        self.readout = readout
        with torch.no_grad():
            self._set(stream)

    def _set(self, stream: Tensor) -> None:
        read, x = self.readout, stream
        self.norm: Norm | None = None
        if read.norm is not None and read.norm_first:
            x = self._frozen_norm(x)
        if read.pool in POOLS:
            self.across = None
            x = _pooled(x, read.pool, read.first)
            self.beside = torch.zeros_like(x)
        else:
            pooling = read.module(read.pool)
            self.across = pooling_map(pooling, x)
            whole = pooling(x)
            y = self._by_attention(x[:, None])[:, 0] + self.across[1]
            self.beside, x = whole.double() - y, whole
        if read.norm is not None and not read.norm_first:
            x = self._frozen_norm(x)
        self.ratios: list[Tensor | None] = []
        for name in read.ends:
            module = read.module(name)
            y = part_output(module, x)
            if getattr(module, "weight", None) is not None:
                self.ratios.append(None)
            else:
                wide = x.double()
                self.ratios.append(torch.where(wide.abs() > _TINY, y.double() / wide, 0.0))
            x = y

    def _frozen_norm(self, x: Tensor) -> Tensor:
        module = self.readout.module(self.readout.norm or "")
        norm = read_norm(module, (x.shape[-1],))
        if norm is None:
            raise UnreadableAttention(f"{self.readout.norm} is not a norm of the stream")
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        # its own gain where it has one: reading it by value costs a few digits
        if isinstance(module, nn.LayerNorm) and weight is not None and bias is not None:
            norm = Norm(weight.detach(), bias.detach(), True, norm.width)
        self.norm, y = norm, part_output(module, x)
        base = self._centred(x)
        written = y.double() - norm.bias.double()
        over = base.square().sum(-1, keepdim=True).clamp_min(_TINY)
        self.scale = (base * written).sum(-1, keepdim=True) / over
        return y

    def _centred(self, x: Tensor) -> Tensor:
        norm = self.norm
        assert norm is not None
        x = x.double()
        return (x - x.mean(-1, keepdim=True) if norm.centred else x) * norm.gain.double()

    def _by_attention(self, parts: Tensor) -> Tensor:
        assert self.across is not None
        pattern, _, value, output = self.across
        mixed = torch.einsum("iht,iptd->iphd", pattern, parts.double())
        return torch.einsum("iphd,hdv,hve->ipe", mixed, value, output)

    def linear(self, parts: Float[Tensor, "image part token d"]) -> Float[Tensor, "image part out"]:
        """Map parts of the stream to the output, without any bias."""
        read, x = self.readout, parts.double()
        if read.norm is not None and read.norm_first:
            scale = self.scale[:, None]
            scale = scale[:, :, :1] if x.shape[2] == 1 else scale
            x = self._centred(x) * scale
        x = self._by_attention(x) if self.across is not None else _pooled(x, read.pool, read.first)
        if read.norm is not None and not read.norm_first:
            x = self._centred(x) * self.scale[:, None]
        return self._through_ends(x)

    def of_pooling(
        self, results: Float[Tensor, "image head d"]
    ) -> tuple[Float[Tensor, "image head out"], Float[Tensor, "image out"]]:
        """Return what the heads of the pooling attention add to the output, and its MLP."""
        x, beside = results.double(), self.beside.double()[:, None]
        if self.readout.norm is not None and not self.readout.norm_first:
            x, beside = (self._centred(each) * self.scale[:, None] for each in (x, beside))
        return self._through_ends(x), self._through_ends(beside)[:, 0]

    def _through_ends(self, x: Tensor) -> Tensor:
        for name, ratio in zip(self.readout.ends, self.ratios, strict=True):
            if ratio is None:
                x = x @ linear_map(self.readout.module(name), x.shape[-1])[0].double()
            else:
                x = x * ratio[:, None]
        return x

    def rest(self) -> tuple[Float[Tensor, "image out"], Float[Tensor, "image out"]]:
        """Return what the biases of the readout add, and what the MLP of a pooling head adds."""
        read = self.readout
        bias = torch.zeros_like(self.beside).double()
        if self.norm is not None and read.norm_first:
            token = self.norm.bias.double()
            if self.across is not None:
                value, output = self.across[2:]
                bias = bias + torch.einsum("d,hdv,hve->e", token, value, output)
            else:
                both = read.pool == POOLS[3]
                bias = bias + (torch.cat([token, token]) if both else token)
        if self.across is not None:
            bias = bias + self.across[1]
        beside = self.beside.double()
        if self.norm is not None and not read.norm_first:
            bias = self._centred(bias) * self.scale + self.norm.bias.double()
            beside = self._centred(beside) * self.scale
        for name, ratio in zip(read.ends, self.ratios, strict=True):
            if ratio is None:
                matrix, added = linear_map(read.module(name), bias.shape[-1])
                bias = bias @ matrix.double() + (0.0 if added is None else added.double())
                beside = beside @ matrix.double()
            else:
                bias, beside = bias * ratio, beside * ratio
        return bias, beside


def _pooled(x: Tensor, pool: str, first: int) -> Tensor:
    """Pool over the last but one axis; a single token there is the class token."""
    if pool == "class token":
        return x[..., 0, :]
    if pool == "mean of tokens":
        return x.mean(-2)
    patches = x[..., first:, :].mean(-2)
    return patches if pool == "mean of patches" else torch.cat([x[..., 0, :], patches], -1)


def pooling_map(pooling: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return pattern, bias, value and output matrices per head of an attention with one query."""
    attention: Any = pooling.get_submodule("attention")
    probe = pooling.get_parameter("probe").expand(len(x), -1, -1)
    heads, d = attention.num_heads, attention.embed_dim
    with torch.no_grad():
        pattern = attention(probe, x, x, average_attn_weights=False)[1][:, :, 0].double()
    value = attention.in_proj_weight[2 * d :].detach().double().view(heads, -1, d).mT
    output = attention.out_proj.weight.detach().double().T.reshape(heads, -1, d)
    bias = attention.out_proj.bias.detach().double()
    if attention.in_proj_bias is not None:
        bias = bias + attention.in_proj_bias[2 * d :].detach().double() @ output.reshape(-1, d)
    return pattern, bias, value, output


def image_output(model: Model, inputs: dict[str, Tensor]) -> tuple[Float[Tensor, "image out"], str]:
    """Return class logits, or the image embedding before it is normalised; and which it is."""
    module: Any = model.module
    with torch.no_grad():
        if "input_ids" in inputs and hasattr(module, "get_image_features"):
            embedding = module.get_image_features(pixel_values=inputs["pixel_values"])
            return getattr(embedding, "pooler_output", embedding), "embedding"
        out = module(pixel_values=inputs["pixel_values"])
    logits = getattr(out, "logits", None)
    if isinstance(logits, Tensor):
        return logits, "logits"
    for name in ("image_embeds", "pooler_output"):
        x = getattr(out, name, None)
        if isinstance(x, Tensor):
            return x, "embedding"
    return out.last_hidden_state[:, 0], "embedding"


def image_readout(model: Model) -> ImageReadout:
    """Find the readout of a model, and check it on two random images."""
    sites = vision_sites(model)
    stack, last = sites[-1].stack, sites[-1].layer
    pixels = probe_inputs(model.module)["pixel_values"]
    [inputs] = batches_of(model, pixels, size=len(pixels))
    stream = model.capture(inputs, ("resid_post",), stack=stack, layers=last)["resid_post", last]
    output, kind = image_output(model, inputs)
    tokens, width = stream.shape[1:]
    with torch.no_grad():
        for candidate in _candidates(model, width, tokens, sites[-1].module, kind):
            try:
                predicted = candidate(stream)
            except (RuntimeError, TypeError):
                continue  # shapes that do not fit
            if predicted.shape != output.shape:
                continue
            if float((predicted - output).abs().max()) <= _CLOSE * float(output.abs().max()):
                return candidate
    raise UnreadableAttention(
        f"{model.name}: no norm, pooling ({', '.join(POOLS)}) and final matrix of it give its "
        "output from the last stream, so the direct effects of its heads cannot be read; its "
        "attention still can (attention distance, sinks, maps)"
    )


def _candidates(
    model: Model, width: int, tokens: int, attention: str, kind: str
) -> Iterator[ImageReadout]:
    outside = list(_outside(model.module, attention))
    leaves = [(n, m) for n, m in outside if not list(m.children())]
    norms = [n for n, m in leaves if read_norm(m, (width,)) is not None]
    pools = [n for n, m in outside if hasattr(m, "probe") and hasattr(m, "attention")]
    chains = [steps for n, m in outside if (steps := _steps(n, m))]
    chains += [(n,) for n, m in leaves if isinstance(m, nn.Linear)]
    prefix = patch_grid(model, tokens).prefix
    for end, pool, norm in itertools.product(((), *chains), (*POOLS, *pools), (*norms, None)):
        for norm_first in (True, False) if norm is not None else (True,):
            for first in dict.fromkeys((prefix, 1)) if "patches" in pool else (prefix,):
                yield ImageReadout(model, norm, norm_first, pool, first, end, kind)


def _outside(module: nn.Module, attention: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield modules that belong to no layer, text tower or pooling head."""
    layers = next(
        ".".join(attention.split(".")[:i])
        for i in range(1, attention.count(".") + 1)
        if isinstance(module.get_submodule(".".join(attention.split(".")[:i])), nn.ModuleList)
    )
    pools: list[str] = []
    for name, each in module.named_modules():
        inside = name.startswith((f"{layers}.", "text_model.", *(f"{p}." for p in pools)))
        if inside or not name:
            continue
        if hasattr(each, "probe"):
            pools.append(name)
        yield name, each


def _steps(name: str, module: nn.Module) -> tuple[str, ...]:
    """Return the steps of a head of matrices and activations, or nothing for another module."""
    named = [(f"{name}.{n}", m) for n, m in module.named_children() if not _idle(m)]
    simple = [not list(m.children()) for _, m in named]
    plain = all(simple) and isinstance(named[0][1] if named else None, nn.Linear)
    plain = plain and all(isinstance(m, nn.Linear) or not list(m.parameters()) for _, m in named)
    return tuple(n for n, _ in named) if plain else ()


def _idle(module: nn.Module) -> bool:
    return isinstance(module, (nn.Dropout, nn.Identity))
