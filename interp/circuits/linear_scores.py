"""Attention scores as linear functions of the outputs of all model parts, for one batch of prompts.

With the scale of each norm held at its value in the run, a head's query and key are linear in the
residual stream, and the stream is the sum of what was written to it: `score = scale * q·k` with

    q_i = x_i G_i,   x_i = [what the head reads at i, in an orthonormal basis of its d_head inputs]

and `x_i` a sum over writers. `G` contains the head's weights, its biases, and the effect of rotary
positions on both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import precise
from interp.model.calls.sites import Site
from interp.model.capture import capture
from interp.model.locate.head_outputs import HeadOutputs, head_outputs
from interp.model.locate.layout import ReadMatrix
from interp.model.locate.norms import centred, norm_at
from interp.model.locate.turning import Turn, turns
from interp.model.locate.weights import HeadWeights, head_weights
from interp.model.precision import why_inexact
from interp.model.sources.placement import require_one_device

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.model.model import Model

_TOLERANCE = 2e-3  # relative to the largest entry: float32 sums over many layers
CONSTANT = "constant"


@dataclass(frozen=True, eq=False)
class Side:
    """Queries (or keys) of one attention layer as linear functions of writers, per query head.

    Args:
        basis: Orthonormal columns that span the part of the stream that the head reads.
        core: Matrix that multiplies the coordinates in that basis; its last row is the constant
            term, for each prompt and position.
        factor: Scale of the preceding norm, for each prompt and position; times the scale of the
            norm of queries or keys, if there is one.
    """

    basis: Float[Tensor, "head d_model d_head"]
    core: Float[Tensor, "batch head pos d_head_1 d_head"]
    factor: Float[Tensor, "batch head pos"]

    def coordinates(
        self, head: int, row: int, pos: int, x: Float[Tensor, "*n d_model"]
    ) -> Float[Tensor, "*n d_head"]:
        """Return the part of given vectors at a position that a head reads."""
        return self.factor[row, head, pos] * (x @ self.basis[head])


class LinearScores:
    """Run of a model on prompts of one length, with its attention scores decomposed by writer.

    Args:
        model: The model.
        prompts: Prompts of one length.
        turned: Position maps found on another batch of this length, to be reused.

    Attributes:
        writers: Names: `embed`, then heads and MLP layer by layer.
        written: What each writer adds to the stream, `[batch, pos, writer, d_model]`.
        constant: The part of the stream that belongs to no writer (biases), `[batch, pos,
            d_model]`, by layer of readers.

    Raises:
        UnreadableAttention: Scores are not a product of one query and key, or the stream is not a
            plain sum; the message names the layer.
    """

    def __init__(
        self, model: Model, prompts: Any, turned: dict[tuple[Site, str], Turn] | None = None
    ) -> None:
        if len(model.stacks) != 1:
            raise UnreadableAttention(
                f"{model.name} has the stacks {', '.join(model.stacks)}; scores can only be "
                "traced in models with one stream"
            )
        require_one_device(model.module, model.name, "a trace")
        self.model, self.sites = model, model.sites
        self.inputs = model.inputs(prompts)
        if "input_ids" not in self.inputs:
            raise UnreadableAttention(
                f"{model.name} reads no tokens; scores can only be traced to tokens"
            )
        self.turns = turns(model, self.inputs) if turned is None else turned
        names = ["q", "k", "z", "scores", "pattern", "resid_pre", "attn_out"]
        mlps = [site.layer for site in self.sites if "mlp_out" in site.streams]
        every = len(mlps) == len(self.sites)
        self.cache = capture(model, self.inputs, [*names, "mlp_out"] if every else names)
        self.mlps = self.cache
        if mlps and not every:  # some blocks of compiled programs have no MLP
            self.mlps = capture(model, self.inputs, ["mlp_out"], layers=mlps)
        self._sides: dict[tuple[Site, str], Side] = {}
        self._write()

    # --- writers ------------------------------------------------------------------------------

    def _write(self) -> None:
        names, parts = ["embed"], [self._stream(self.sites[0])[:, :, None]]
        self.before: dict[Site, int] = {}
        self.outputs: dict[Site, HeadOutputs] = {}
        self.constant: dict[Site, Tensor] = {}
        rest = torch.zeros_like(parts[0][:, :, 0])
        for site in self.sites:
            stream = self._stream(site)
            written = torch.cat(parts, 2)
            left = stream - written.sum(2) - rest
            size = max(float(stream.abs().max()), float(written.abs().max()))
            if float(left.abs().max()) > _TOLERANCE * size:
                raise UnreadableAttention(
                    f"{self.model.name}: the stream that layer {site.layer} reads is not the sum "
                    "of embeddings, heads and MLPs before it, so its scores cannot be traced to "
                    "these: "
                    + why_inexact(self.model.dtype, "norms after attention, or another writer")
                )
            self.before[site], self.constant[site] = written.shape[2], rest.clone()
            z, added = (precise(self.cache[name, site.layer]) for name in ("z", "attn_out"))
            z = z.transpose(1, 2)
            self.outputs[site] = head_outputs(self.weights[site], z, added)
            out = self.outputs[site].added(z)
            parts.append(out)
            rest = rest + added - out.sum(2)
            names += [f"L{site.layer}H{h}" for h in range(site.n_heads)]
            if "mlp_out" in site.streams:
                parts.append(precise(self.mlps["mlp_out", site.layer])[:, :, None])
                names.append(f"mlp{site.layer}")
        self.writers, self.written = tuple(names), torch.cat(parts, 2)
        self.index = {name: i for i, name in enumerate(names)}

    def _stream(self, site: Site) -> Float[Tensor, "batch pos d_model"]:
        return precise(self.cache["resid_pre", site.layer])

    # --- readers ------------------------------------------------------------------------------

    @cached_property
    def weights(self) -> dict[Site, HeadWeights]:
        """Weights of every attention layer, with the norms before and after folded in."""
        return {site: head_weights(self.model, site).folded for site in self.sites}

    def scale(self, site: Site) -> float:
        """Return the factor by which q·k is multiplied."""
        return self.weights[site].scale

    def side(self, site: Site, part: str) -> Side:
        """Get queries ("q") or keys ("k") of an attention layer, keys repeated per query head."""
        if (site, part) not in self._sides:
            self._sides[site, part] = self._side(site, part)
        return self._sides[site, part]

    def _side(self, site: Site, part: str) -> Side:
        w, matrix = self.weights[site], self.turns[site, part]
        reading = getattr(w.layout, part)
        assert isinstance(reading, ReadMatrix)
        weight, bias = (w.W_Q, w.b_Q) if part == "q" else (w.W_K, w.b_K)
        kv = list(range(site.n_heads))
        if part == "k":
            kv = [site.kv_head(h) for h in range(site.n_heads)]
        weight, bias = weight[kv], bias[kv]
        target = precise(self.cache[part, site.layer])[:, kv]  # [batch, head, pos, d_head]
        stream, outer = self._stream(site), self.factor(site, reading)
        before = torch.einsum("bpm,hmd->bhpd", stream, weight) * outer[:, None, :, None]
        inner = torch.ones_like(before[..., 0])
        own_bias = torch.zeros(1, 1, 1, site.d_head).to(before)
        if reading.own_norm is not None:
            norm = norm_at(self.model.module, reading.own_norm.module, reading.own_norm.shape)
            own_bias = self._own_bias(norm.bias, reading, site)[:, None]
            moved = _turned(before + bias[:, None], matrix)
            inner = _slope(target - _turned(own_bias, matrix), moved)
        added = _turned(inner[..., None] * bias[:, None] + own_bias, matrix)
        computed = _turned(inner[..., None] * before, matrix) + added
        if float((computed - target).abs().max()) > _TOLERANCE * float(target.abs().max()):
            raise UnreadableAttention(
                f"{site.name} ({site.module}): {'queries' if part == 'q' else 'keys'} do not "
                "follow from its weights, norms and positions: "
                + why_inexact(self.model.dtype, "its scores cannot be traced")
            )
        basis, upper = torch.linalg.qr(weight)  # [head, d_model, d_head], [head, d_head, d_head]
        core = torch.einsum("hed,hpdf->hpef", upper, matrix.expand(len(kv), -1, -1, -1))
        core = core.expand(len(target), *core.shape)
        return Side(basis, torch.cat([core, added[..., None, :]], -2), inner * outer[:, None])

    def factor(self, site: Site, reading: ReadMatrix) -> Float[Tensor, "batch pos"]:
        """Return the scale of the norm before a projection at every position."""
        stream = self._stream(site)
        if reading.before is None:
            return torch.ones_like(stream[..., 0])
        module = self.model.module.get_submodule(reading.before)
        norm = norm_at(self.model.module, reading.before, stream.shape[-1:])
        with torch.no_grad():
            given = self.cache["resid_pre", site.layer]
            out = precise(module(given)) - norm.bias
        x = centred(stream.movedim(-1, 0), norm.width).movedim(0, -1) if norm.centred else stream
        return _slope(out, x * norm.gain)

    def _own_bias(self, bias: Tensor, reading: ReadMatrix, site: Site) -> Tensor:
        assert reading.own_norm is not None
        whole = bias.expand(*reading.own_norm.shape[:-1], len(bias)).reshape(-1)
        taken = reading.own_norm.columns.take(precise(whole)).reshape(-1, site.d_head)
        return taken[[h * len(taken) // site.n_heads for h in range(site.n_heads)]]

    # --- one score ----------------------------------------------------------------------------

    def read(
        self, site: Site, part: str, head: int, row: int, pos: int
    ) -> Float[Tensor, "writer_1 d_head_1"]:
        """Return what a head reads of each earlier writer at a position, in its own coordinates.

        The last row belongs to no writer: constants of the stream, and the head's bias.
        """
        side = self.side(site, part)
        x = self.written[row, pos, : self.before[site]]
        x = torch.cat([x, self.constant[site][row, pos][None]])
        coordinates = side.coordinates(head, row, pos, x)
        ones = torch.zeros(len(coordinates), 1).to(coordinates)
        ones[-1] = 1.0
        return torch.cat([coordinates, ones], 1)

    def cores(self, site: Site, head: int, row: int, query: int, key: int) -> tuple[Tensor, Tensor]:
        """Return the matrices for coordinates of query and key, each `[d_head + 1, d_head]`."""
        return (
            self.side(site, "q").core[row, head, query],
            self.side(site, "k").core[row, head, key],
        )


def _turned(
    x: Float[Tensor, "*batch head #pos given"], matrix: Float[Tensor, "#head pos given entering"]
) -> Float[Tensor, "*batch head pos entering"]:
    return (x[..., None, :] @ matrix)[..., 0, :]


def _slope(target: Tensor, x: Tensor) -> Tensor:
    """Return the least-squares factor from x to target, over the last axis."""
    return (target * x).sum(-1) / x.square().sum(-1).clamp_min(1e-30)
