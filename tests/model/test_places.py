"""A replaced place is that of a model made by hand: all readers of the place see the new values.

The blocks below are the families' own equations, written out again with the replacement in them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import zoo
from together import over
from torch import Tensor, nn

import interp
from interp.core.errors import UnreadableAttention
from interp.model.activation_names import STREAM_NAMES
from interp.model.calls.sites import circuit_sites
from interp.model.layer_tensors import PLACES, watched_places

At = Callable[[str, Tensor], Tensor]


def first(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else x[0]


def llama(block: Any, x: Tensor, at: At, options: dict) -> Tensor:
    """Also Granite, which scales both branches."""
    scale = getattr(block, "residual_multiplier", 1.0)
    x = at("resid_pre", x)
    a = block.self_attn(hidden_states=at("attn_in", block.input_layernorm(x)), **options)[0]
    x = at("resid_mid", x + at("attn_out", a * scale))
    return at("resid_post", x + block.mlp(block.post_attention_layernorm(x)) * scale)


def gemma2(block: Any, x: Tensor, at: At, options: dict) -> Tensor:
    x = at("resid_pre", x)
    a = block.self_attn(hidden_states=at("attn_in", block.input_layernorm(x)), **options)[0]
    x = at("resid_mid", x + at("attn_out", block.post_attention_layernorm(a)))
    m = block.mlp(block.pre_feedforward_layernorm(x))
    return at("resid_post", x + block.post_feedforward_layernorm(m))


def gpt2(block: Any, x: Tensor, at: At, options: dict) -> Tensor:
    x = at("resid_pre", x)
    options.pop("encoder_hidden_states", None)
    x = at("resid_mid", x + at("attn_out", block.attn(at("attn_in", block.ln_1(x)), **options)[0]))
    return at("resid_post", x + block.mlp(block.ln_2(x)))


def bert(block: Any, x: Tensor, at: At, options: dict) -> Tensor:
    x, own = at("resid_pre", x), block.attention
    a = own.output.dense(own.self(at("attn_in", x), *options.pop("rest")[:1], **options)[0])
    x = at("resid_mid", own.output.LayerNorm(x + at("attn_out", a)))
    m = block.output.dense(block.intermediate(x))
    return at("resid_post", block.output.LayerNorm(x + m))


def albert(block: Any, x: Tensor, at: At, options: dict) -> Tensor:
    """Its attention module adds its input and ends in the norm."""
    x, own = at("resid_pre", x), copy.copy(block.attention)
    own._modules = dict(own._modules) | {"LayerNorm": nn.Identity()}
    read = at("attn_in", x)
    a = own(read, *options.pop("rest"), **options)[0] - read
    x = at("resid_mid", block.attention.LayerNorm(x + at("attn_out", a)))
    return at("resid_post", block.full_layer_layer_norm(block.ff_chunk(x) + x))


def bloom(block: Any, x: Tensor, at: At, options: dict) -> Tensor:
    """Its attention module and its MLP are handed the stream, and add it."""
    x = at("resid_pre", x)
    options.pop("rest")
    nothing, read = torch.zeros_like(x), at("attn_in", block.input_layernorm(x))
    a = block.self_attention(read, nothing, **options)[0]
    x = at("resid_mid", x + at("attn_out", a))
    return at("resid_post", x + block.mlp(block.post_attention_layernorm(x), nothing))


BLOCKS = {
    "llama": (llama, "model.layers.1", "self_attn.o_proj"),
    "granite": (llama, "model.layers.1", "self_attn.o_proj"),
    "gemma2": (gemma2, "model.layers.1", "self_attn.o_proj"),
    "gpt2": (gpt2, "transformer.h.1", "attn.c_proj"),
    "bert": (bert, "bert.encoder.layer.1", "attention.output.dense"),
    "albert": (albert, "albert.encoder.albert_layer_groups.0.albert_layers.0", "attention.dense"),
    "bloom": (bloom, "transformer.h.1", "self_attention.dense"),
}


def by_hand(name: str, place: str, new: Callable[[Tensor], Tensor]) -> nn.Module:
    """The family's model with layer 1 in its own equations, and new values at the place."""
    family = zoo.FAMILIES[name]
    equations, path, projection = BLOCKS[name]
    module = family.build(family.attentions[-1]).double()
    block: Any = module.get_submodule(path)
    given, runs = block.forward, []

    def at(where: str, x: Tensor) -> Tensor:
        return new(x) if where == place else x

    def forward(x: Tensor, *rest: Any, **options: Any) -> Any:
        runs.append(0)
        if len(runs) - 1 != (name == "albert"):  # whose layers are one module
            return given(x, *rest, **options)
        out = given(x, *rest, **options)
        options = dict(options)
        options |= {"rest": rest} if rest or name in ("bert", "albert", "bloom") else {}
        handle = block.get_submodule(projection).register_forward_pre_hook(
            lambda m, args: (at("z", args[0]), *args[1:])
        )
        with torch.no_grad():
            made = equations(block, x, at, options)
        handle.remove()
        return made if isinstance(out, Tensor) else (made, *out[1:])

    block.forward = forward
    return module


@cache
def exact(name: str) -> interp.Model:
    """In float64: norms of a stream of zeros enlarge what float32 rounds."""
    family = zoo.FAMILIES[name]
    return interp.load(family.build(family.attentions[-1]).double())


@over("fill", [0.0, 1.0], ids=["zeros", "noise"])
@over("place", PLACES)
@over("name", BLOCKS)
def test_a_replaced_place_is_that_of_the_model_made_by_hand(name, place, fill):
    model, inputs = exact(name), zoo.FAMILIES[name].inputs()
    if name not in ("bert", "albert"):
        inputs["use_cache"] = False  # the block by hand runs beside the family's own
    site = next(s for s in model.sites if s.layer == 1)

    def new(x: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return fill * torch.randn(x.shape, generator=generator, dtype=x.dtype)

    def output(module: nn.Module) -> Tensor:
        with torch.no_grad():
            return zoo.output(module(**inputs))

    plain = output(model.module)
    untouched = output(by_hand(name, "nothing", new))
    torch.testing.assert_close(untouched, plain, atol=1e-9, rtol=0)
    with torch.no_grad(), watched_places(model, site, {place: new}):
        got = zoo.output(model.module(**inputs)) if place != "z" else model.run(inputs)
    want = output(by_hand(name, place, new))
    torch.testing.assert_close(got, want, atol=1e-9, rtol=0)
    assert not torch.allclose(got, plain, atol=1e-3)


READ = [f for f in zoo.FAMILIES.values() if "refused" not in f.features]


@over("family", READ, ids=lambda f: f.name)
def test_a_replaced_middle_is_what_follows_it_reads_and_adds_to(loaded, family):
    """In every family and stack: no tensor of the old stream is added behind the replacement."""
    model, inputs = loaded(family.name), family.inputs()
    sites = {s.stack: s for s in circuit_sites(model.sites) if "resid_mid" in s.streams}
    for site in sites.values():
        shape = model.capture(inputs, ["resid_pre"], layers=site.layer, stack=site.stack)[
            "resid_pre", site.layer, site.stack
        ].shape
        if len(shape) != 3:
            continue
        new = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        sees = {"resid_mid": lambda x, new=new: new}
        with watched_places(model, site, sees, (shape[0], shape[1])):
            cache = model.capture(inputs, [n for n in STREAM_NAMES if n in site.streams])
        mid = cache["resid_mid", site.layer, site.stack]
        torch.testing.assert_close(mid, new, atol=1e-5, rtol=1e-5)
        after = next((s for s in model.sites if s.stack == "cross" and s.layer == site.layer), None)
        if after is not None and site.stack == "decoder":
            total = new + cache["attn_out", site.layer, "cross"]
            found = cache["resid_mid", site.layer, "cross"]
        else:
            total = new + cache["mlp_out", site.layer, site.stack]
            found = cache["resid_post", site.layer, site.stack]
        normed = nn.functional.layer_norm(total, total.shape[-1:])
        assert any(torch.allclose(x, found, atol=2e-3) for x in (total, normed)), site.name


def test_an_input_that_may_be_the_stream_is_read_and_not_replaced(loaded):
    """What XLNet's attention adds is not found, and its module adds its own input."""
    model, inputs = loaded("xlnet"), zoo.FAMILIES["xlnet"].inputs()
    site, seen = model.sites[0], []
    with watched_places(model, site, {"attn_in": seen.append}):
        model.run(inputs)
    assert len(seen) == 1
    with (
        watched_places(model, site, {"attn_in": torch.zeros_like}),
        pytest.raises(UnreadableAttention, match="attn_in can be read but not replaced"),
    ):
        model.run(inputs)


def test_what_is_seen_is_the_same_with_and_without_a_replacement(loaded):
    model, inputs = loaded("granite"), zoo.FAMILIES["granite"].inputs()
    site, names = model.sites[1], [n for n in PLACES if n != "z"]
    cache = interp.Model.capture(model, inputs, [n for n in names if n in STREAM_NAMES])
    seen: dict[str, Tensor] = {}
    keepers = {n: (lambda x, n=n: seen.update({n: x})) for n in names}
    with watched_places(model, site, keepers):
        model.run(inputs)
    for n in names:
        if n in STREAM_NAMES:
            torch.testing.assert_close(seen[n], cache[n, 1], atol=1e-6, rtol=1e-5)
