"""Edges into heads with one input, by plain hooks: state spaces, delta rules, gated attention."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import transformers
from circuits.contrasts import induction_pairs
from torch import Tensor, nn
from zoo import mixers

import interp
from interp.circuits.edge_forward import EdgeForward, SoftEdges
from interp.circuits.methods import attribution_patching
from interp.circuits.methods._attribution import RunPair, edges_by_gradient, nodes_by_gradient
from interp.circuits.methods._gradients import Passes
from interp.circuits.residual_graph import ResidualGraph
from interp.core.errors import UnreadableAttention

CLEAN = torch.tensor([[9, 13, 21, 10, 3, 21, 2, 17], [1, 2, 3, 4, 5, 6, 7, 8]])
CORRUPTED = torch.tensor([[5, 6, 7, 8, 1, 2, 3, 4], [9, 3, 20, 4, 3, 21, 2, 17]])
#: state space per head and per channel, delta rule with gated attention, recurrence, differential
FAMILIES = ["bamba", "jamba", "mamba", "mamba2", "nemotron", "qwen3_next", "kimi_linear"]
FAMILIES += ["recurrent_gemma", "diffllama", "olmo_hybrid"]
EVERY = [
    name if name == "bamba" else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES
]


@cache
def edges_of(name: str) -> EdgeForward:
    model = interp.load(mixers.build(name), name=name)
    return EdgeForward(ResidualGraph.of(model), CLEAN, CORRUPTED)


def value(logits: Tensor) -> Tensor:
    return logits[:, -1, 5] - logits[:, -1, 7]


class Stop(Exception):
    """What was asked for has been seen."""


def entering(module: nn.Module, place: str, ids: Tensor, put: dict[str, Tensor]) -> Tensor:
    """What a module reads in a run in which other modules read given inputs."""
    seen: list[Tensor] = []

    def keep(_: nn.Module, args: tuple, kwargs: dict) -> None:
        seen.append((args[0] if args else kwargs["hidden_states"]).clone())
        raise Stop

    def exchange(x: Tensor):
        def hook(_: nn.Module, args: tuple, kwargs: dict):
            if args:
                return (x, *args[1:]), kwargs
            return args, kwargs | {"hidden_states": x}

        return hook

    handles = [
        module.get_submodule(path).register_forward_pre_hook(exchange(x), with_kwargs=True)
        for path, x in put.items()
    ]
    handles.append(module.get_submodule(place).register_forward_pre_hook(keep, with_kwargs=True))
    try:
        with torch.no_grad():
            module(ids, use_cache=False)
    except Stop:
        return seen[0]
    finally:
        for handle in handles:
            handle.remove()
    raise AssertionError("the module did not run")


def by_hand(edges: EdgeForward, senders: list[tuple[int, int]], reader: tuple[int, int]) -> Tensor:
    """Logits where one head reads what earlier heads write in the other run, and nobody else does.

    Heads are given by the order of their layer, and their number.
    """
    module, layers = edges.model.module, edges.graph.layers
    order, head = reader
    block, place = layers[order].block, layers[order].site.projection
    x = entering(module, block, CLEAN, {})
    for i, h in senders:
        project, size = layers[i].site.projection, layers[i].site.d_v
        a, b = (entering(module, project, ids, {}) for ids in (CLEAN, CORRUPTED))
        moved = torch.zeros_like(a)
        moved[..., h * size : (h + 1) * size] = (b - a)[..., h * size : (h + 1) * size]
        with torch.no_grad():
            added = module.get_submodule(project)(moved) - module.get_submodule(project)(0 * moved)
        x = x + added * layers[i].site.streams["attn_out"].scale
    z, changed = (entering(module, place, CLEAN, put) for put in ({}, {block: x}))
    size = layers[order].site.d_v
    z[..., head * size : (head + 1) * size] = changed[..., head * size : (head + 1) * size]
    handle = module.get_submodule(place).register_forward_pre_hook(lambda *_: (z,))
    try:
        with torch.no_grad():
            return module(CLEAN, use_cache=False).logits
    finally:
        handle.remove()


@pytest.mark.parametrize("name", EVERY[:-1])  # the last has one such layer, its first
def test_edges_into_a_head_with_one_input_equal_plain_hooks(name):
    edges = edges_of(name)
    graph = edges.graph
    readers = [layer for layer in graph.layers[1:] if layer.whole]
    assert readers
    layer = readers[-1]
    before = [x for x in graph.layers[: layer.order] if x.norm is None]
    full, size = graph.full(), float(edges.base.logits.abs().max())
    for senders in ([(before[0].order, 1)], [(x.order, h) for x in before for h in (0, 1)]):
        names = [f"L{graph.layers[i].site.layer}H{h}" for i, h in senders]
        got = edges.run(full - graph.mask([(w, f"L{layer.site.layer}H1") for w in names]))
        want = by_hand(edges, senders, (layer.order, 1))
        torch.testing.assert_close(got, want, atol=1e-5 * max(1.0, size), rtol=0.0)
        assert float((got - edges.base.logits).abs().max()) > 1e-4 * size


@pytest.mark.parametrize("name", EVERY)
def test_all_edges_and_no_edge_give_the_two_runs(name):
    edges = edges_of(name)
    for mask, ids in ((edges.graph.full(), CLEAN), (edges.graph.full() * 0, CORRUPTED)):
        with torch.no_grad():
            want = edges.model.module(ids, use_cache=False).logits
        size = float(want.abs().max())
        torch.testing.assert_close(edges.run(mask), want, atol=1e-5 * max(1.0, size), rtol=0.0)


@pytest.mark.parametrize("name", EVERY)
def test_gradients_are_slopes_of_forwards(name):
    edges = edges_of(name)
    graph, full = edges.graph, edges.graph.full()
    pair = RunPair(graph, CLEAN, CORRUPTED, value, Passes())
    scores = edges_by_gradient(pair)
    size = float(scores.abs().max())
    torch.testing.assert_close(scores.sum(1), nodes_by_gradient(pair), atol=1e-4 * size, rtol=1e-4)
    mask = full.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(SoftEdges(edges).run(mask)).sum(), mask)
    torch.testing.assert_close(gradient * full, scores.sum(0), atol=1e-4 * size, rtol=1e-4)
    whole = [i for i, r in enumerate(graph.readers) if r.kind == "head" and not r.part]
    assert float(scores[:, whole].abs().max()) > 1e-3 * size


def test_computed_softmaxes_are_refused_where_there_are_none():
    model = edges_of("bamba").model
    pairs = induction_pairs(model, 4, length=4)
    with pytest.raises(UnreadableAttention, match=r"decoder\.0.* leave out qk_fix"):
        attribution_patching(model, pairs, qk_fix=True)


def test_layers_without_heads_between_attention_are_refused():
    config = transformers.Lfm2Config(
        **mixers.BASE | {"num_hidden_layers": 3},
        layer_types=["full_attention", "conv", "full_attention"],
    )
    with torch.random.fork_rng(devices=[]):
        graph = ResidualGraph.of(interp.load(transformers.Lfm2ForCausalLM(config).eval()))
    with pytest.raises(UnreadableAttention, match="L1 conv writes to the stream"):
        EdgeForward(graph, CLEAN, CORRUPTED)
