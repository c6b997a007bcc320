"""Llama and BERT written out, with rules and with parts carried along: independent of the engine.

Everything is plain torch on the weights of the Hugging Face model, in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class By:
    """How derivatives are bent, by adding and subtracting detached copies."""

    freeze: bool = False
    temperature: float = 1.0
    norm: bool = False
    identity: bool = False
    split: bool = False
    gate_stops: bool = False

    def share(self, x: Tensor, factor: float) -> Tensor:
        return x * factor + (x * (1 - factor)).detach() if self.split else x

    def softmax(self, s: Tensor) -> Tensor:
        p = s.softmax(-1)
        if self.freeze:
            return p.detach()
        soft = (s / self.temperature).softmax(-1) * self.temperature
        return p.detach() + soft - soft.detach()

    def scale(self, x: Tensor) -> Tensor:
        return x.detach() if self.norm else x

    def act(self, x: Tensor, f) -> Tensor:
        return x * (f(x) / x).detach() if self.identity else f(x)


def rotate(x: Tensor, theta: float) -> Tensor:
    n, d = x.shape[-2:]
    inverse = theta ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    angle = torch.outer(torch.arange(n, dtype=x.dtype), inverse)
    cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
    left, right = x[..., : d // 2], x[..., d // 2 :]
    return x * cos + torch.cat([-right, left], -1) * sin


def llama(module, x: Tensor, by: By, parts: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Logits of one prompt from its embeddings, and of the parts `[source, pos, d_model]`."""
    config = module.config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    theta = config.rope_parameters["rope_theta"]
    n = len(x)
    hidden = torch.full((n, n), -torch.inf, dtype=x.dtype).triu(1)

    def norm(x: Tensor, parts: Tensor | None, m) -> tuple[Tensor, Tensor | None]:
        scale = by.scale((x.square().mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt())
        w = m.weight.double()
        return x * scale * w, None if parts is None else parts * scale * w

    def split_heads(x: Tensor, w: Tensor, count: int) -> Tensor:
        y = (x @ w.double().T).unflatten(-1, (count, -1)).movedim(-2, -3)
        return y.repeat_interleave(heads // count, -3)

    for layer in module.model.layers:
        a, mlp = layer.self_attn, layer.mlp
        h, hp = norm(x, parts, layer.input_layernorm)
        q = by.share(rotate(split_heads(h, a.q_proj.weight, heads), theta), 0.25)
        k = by.share(rotate(split_heads(h, a.k_proj.weight, groups), theta), 0.25)
        v = split_heads(h, a.v_proj.weight, groups)
        v = v if by.freeze else by.share(v, 0.5)
        p = by.softmax(q @ k.mT * q.shape[-1] ** -0.5 + hidden)
        o = a.o_proj.weight.double().T
        x = x + (p @ v).movedim(-3, -2).flatten(-2) @ o
        if parts is not None:
            assert hp is not None
            vp = split_heads(hp, a.v_proj.weight, groups)
            parts = parts + (p @ vp).movedim(-3, -2).flatten(-2) @ o
        h, hp = norm(x, parts, layer.post_attention_layernorm)
        w_gate, w_up, w_down = (
            m.weight.double().T for m in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )
        gate, up = h @ w_gate, h @ w_up
        active = by.act(gate, F.silu)
        active = active.detach() if by.gate_stops else active
        x = x + (by.share(active, 0.5) * by.share(up, 0.5)) @ w_down
        if parts is not None:
            assert hp is not None
            gate_parts = hp @ w_gate * (active / gate)
            parts = parts + (gate_parts * up + active * (hp @ w_up)) / 2 @ w_down
    x, parts = norm(x, parts, module.model.norm)
    out = module.lm_head.weight.double().T
    return x @ out, None if parts is None else parts @ out


def bert_parts(module, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of BERT with its head of masked words, and of each word embedding's part."""
    config, bert = module.config, module.bert
    weights = {k: w.double() for k, w in module.state_dict().items()}

    def linear(x: Tensor, parts: Tensor, name: str) -> tuple[Tensor, Tensor]:
        w = weights[f"{name}.weight"].T
        return x @ w + weights[f"{name}.bias"], parts @ w

    def norm(x: Tensor, parts: Tensor, name: str) -> tuple[Tensor, Tensor]:
        scale = (x.var(-1, keepdim=True, unbiased=False) + config.layer_norm_eps).rsqrt()
        w = scale * weights[f"{name}.weight"]
        return (
            (x - x.mean(-1, keepdim=True)) * w + weights[f"{name}.bias"],
            (parts - parts.mean(-1, keepdim=True)) * w,
        )

    def split_heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (config.num_attention_heads, -1)).movedim(-2, -3)

    e = "bert.embeddings"
    words = weights[f"{e}.word_embeddings.weight"][ids]
    n = len(ids)
    x = words + weights[f"{e}.position_embeddings.weight"][:n]
    x = x + weights[f"{e}.token_type_embeddings.weight"][0]
    parts = torch.eye(n, dtype=x.dtype)[:, :, None] * words
    x, parts = norm(x, parts, f"{e}.LayerNorm")
    for i in range(len(bert.encoder.layer)):
        name = f"bert.encoder.layer.{i}"
        q, k = (
            split_heads(linear(x, parts, f"{name}.attention.self.{s}")[0]) for s in ("query", "key")
        )
        v, vp = map(split_heads, linear(x, parts, f"{name}.attention.self.value"))
        p = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        z, zp = ((p @ y).movedim(-3, -2).flatten(-2) for y in (v, vp))
        a, ap = linear(z, zp, f"{name}.attention.output.dense")
        x, parts = norm(x + a, parts + ap, f"{name}.attention.output.LayerNorm")
        m, mp = linear(x, parts, f"{name}.intermediate.dense")
        active = F.gelu(m)
        a, ap = linear(active, mp * (active / m), f"{name}.output.dense")
        x, parts = norm(x + a, parts + ap, f"{name}.output.LayerNorm")
    m, mp = linear(x, parts, "cls.predictions.transform.dense")
    active = F.gelu(m)
    head = "cls.predictions.transform.LayerNorm"
    x, parts = norm(active, mp * (active / m), head)
    return linear(x, parts, "cls.predictions.decoder")
