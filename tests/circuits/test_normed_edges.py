"""Edges where a norm, a factor or a parallel block stands between heads and stream, by hand."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from circuits.contrasts import induction_pairs
from circuits.slow_families import FAMILIES, HEADS, forward
from torch import Tensor

import interp
from interp.attribution.rules import Rules
from interp.circuits.edge_forward import EdgeForward, SoftEdges
from interp.circuits.methods import (
    attribution_patching,
    exact_patching,
    gim_patching,
    verified_edges,
)
from interp.circuits.methods._attribution import RunPair, edges_by_gradient, nodes_by_gradient
from interp.circuits.methods._exact import node_effects
from interp.circuits.methods._gradients import Passes
from interp.circuits.path_patching import _Paths, routes_of
from interp.circuits.residual_graph import ResidualGraph

CLEAN = torch.tensor([[9, 33, 21, 40, 33, 21, 17, 9], [1, 2, 3, 4, 5, 6, 7, 8]])
CORRUPTED = torch.tensor([[5, 6, 7, 8, 1, 2, 3, 4], [9, 33, 20, 40, 33, 21, 17, 9]])
READ = ((7,), (7,))  # positions that `value` reads
NORMED = ("gemma2", "gemma3", "olmo2", "olmo3", "glm4", "exaone4")
FIRST = ("gemma2", "olmo2")  # a norm before and behind the heads, and only behind them
EVERY = [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
EVERY_NORMED = [
    name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in NORMED
]


@cache
def edges_of(name: str) -> EdgeForward:
    model = interp.load(FAMILIES[name].build(), name=name)
    return EdgeForward(ResidualGraph.of(model), CLEAN, CORRUPTED)


@cache
def other_of(name: str) -> dict[str, Tensor]:
    with torch.no_grad():
        return forward(FAMILIES[name], edges_of(name).model.module, CORRUPTED, lambda *_: 1.0)[1]


def slow(name: str, mask: Tensor) -> Tensor:
    """Logits under a mask, by plain hooks."""
    graph = edges_of(name).graph

    def live(writer: str, reader: str) -> float:
        return float(mask[graph.reader_index[reader], graph.index[writer]])

    with torch.no_grad():
        module = edges_of(name).model.module
        return forward(FAMILIES[name], module, CLEAN, live, other_of(name))[0]


def close(a: Tensor, b: Tensor, tolerance: float = 1e-6) -> None:
    """Compare relative to the largest entry: norms and softmaxes of these models are in float32."""
    torch.testing.assert_close(a, b, atol=tolerance * max(1.0, float(b.abs().max())), rtol=0.0)


def value(logits: Tensor) -> Tensor:
    return logits[:, -1, 5] - logits[:, -1, 7]


@pytest.mark.parametrize("name", EVERY)
def test_any_set_of_edges_equals_plain_hooks(name):
    edges = edges_of(name)
    full = edges.graph.full().double()
    with torch.no_grad():
        close(edges.run(full), edges.model.module(CLEAN).logits)
        close(edges.run(0 * full), edges.model.module(CORRUPTED).logits)
    for share in (0.1, 0.5, 0.9):
        drawn = torch.rand(full.shape, generator=torch.manual_seed(int(10 * share))) < share
        got = edges.run(full * drawn)
        close(got, slow(name, full * drawn))
        assert float((got - edges.base.logits).abs().max()) > 0.01


@pytest.mark.parametrize("name", EVERY)
def test_one_edge_and_several_at_once_equal_plain_hooks(name):
    """Each kind of reader, of one sender and of two heads of a layer, in one batch of masks."""
    edges, masks = edges_of(name), []
    paths = [[("L0H2", f"L2H1.{part}")] for part in "qkv"]
    paths += [[("L1H3", "mlp2")], [("embed", "mlp1")], [("mlp0", "L1H0.k")], [("L0H1", "logits")]]
    paths += [[("L0H2", "logits"), ("L0H3", "logits"), ("L1H0", "logits"), ("mlp1", "logits")]]
    full = edges.graph.full().double()
    for path in paths:
        masks.append(full - edges.graph.mask(path))
    together = edges.run(torch.stack(masks))
    for path, mask, got in zip(paths, masks, together, strict=True):
        close(got, slow(name, mask))
        close(edges.run(mask), got)
        assert float((got - edges.base.logits).abs().max()) > 1e-4, path


@pytest.mark.parametrize("name", EVERY)
def test_a_node_equals_its_output_replaced_in_the_model(name):
    """The output projection reads the other run's columns of one head: nothing else is touched."""
    edges, names = edges_of(name), FAMILIES[name]
    module = edges.model.module
    got = node_effects(edges, value, ["L1H2", "L0H0"])
    for row, (layer, head) in zip(got, ((1, 2), (0, 0)), strict=True):
        where = f"{names.blocks}.{layer}.{names.attention}.{names.output}"
        project = module.get_submodule(where)
        kept: list[Tensor] = []
        hook = project.register_forward_pre_hook(lambda _, args, kept=kept: kept.append(args[0]))
        with torch.no_grad():
            module(CORRUPTED)
        hook.remove()

        def exchange(_, args, kept=kept, head=head):
            size = args[0].shape[-1] // HEADS
            x = args[0].clone()
            x[..., head * size : (head + 1) * size] = kept[0][..., head * size : (head + 1) * size]
            return (x,)

        hook = project.register_forward_pre_hook(exchange)
        with torch.no_grad():
            logits = module(CLEAN).logits
        hook.remove()
        close(row, value(edges.base.logits) - value(logits))


@pytest.mark.parametrize("name", EVERY)
def test_gradients_go_through_the_norm(name):
    """Scores of edges are the slopes of real forwards, and the gradient of a soft mask is both."""
    edges = edges_of(name)
    graph, full = edges.graph, edges.graph.full().double()
    pair = RunPair(graph, CLEAN, CORRUPTED, value, Passes())
    scores = edges_by_gradient(pair)
    close(scores.sum(1), nodes_by_gradient(pair))
    mask = full.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(SoftEdges(edges).run(mask)).sum(), mask)
    close(gradient * full, scores.sum(0), 1e-5)
    draw = torch.Generator().manual_seed(1)
    for r in torch.randint(len(graph.readers), (8,), generator=draw).tolist():
        w = int(torch.randint(graph.readers[r].n_before, (1,), generator=draw))
        one = torch.zeros_like(full)
        one[r, w] = 2e-3
        more, less = edges.run(torch.stack([full + one, full - one]))
        slope = (value(more) - value(less)) / 4e-3
        torch.testing.assert_close(slope, scores[:, r, w], atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("name", EVERY_NORMED)
def test_a_soft_mask_equals_plain_hooks(name):
    edges = edges_of(name)
    full = edges.graph.full().double()
    mask = full * torch.rand(full.shape, generator=torch.manual_seed(4)).double()
    close(SoftEdges(edges).run(mask).detach(), slow(name, mask))
    close(edges.run(mask), slow(name, mask))
    closed = full - edges.graph.mask([(f"L0H{h}", "L2H1.v") for h in range(HEADS)])
    at = edges.graph.reader_index["L2H1.v"], edges.graph.index["L0H1"]
    ends = closed.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(SoftEdges(edges).run(ends)).sum(), ends)
    one = torch.zeros_like(full)
    one[at] = 2e-3
    more, less = edges.run(torch.stack([closed + one, closed - one]))
    slope = float((value(more) - value(less)).sum()) / 4e-3
    assert abs(slope) > 0.01  # a mask of 0 has a gradient too
    assert float(gradient[at]) == pytest.approx(slope, rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("name", EVERY_NORMED)
def test_a_frozen_norm_is_linear_and_an_exact_one_is_not(name):
    edges = edges_of(name)
    full = edges.graph.full().double()
    both = [edges.graph.mask([(f"L0H{h}", "logits")]).double() for h in (0, 1)]
    base = edges.base.logits
    one, two, together, half = (
        edges.run(full - x, norm="freeze") - base
        for x in (both[0], both[1], both[0] + both[1], 0.5 * both[0])
    )
    if name != "gemma2":  # its logits are capped
        close(one + two, together)
        close(one / 2, half)
    exact = [edges.run(full - x) - base for x in (both[0], both[1], both[0] + both[1])]
    assert float((exact[0] + exact[1] - exact[2]).abs().max()) > 1e-3


@pytest.mark.parametrize("name", EVERY_NORMED)
def test_frozen_gradients_hold_the_norm_of_heads_too(name):
    """Scores of edges into the logits are slopes of forwards with frozen norms."""
    edges = edges_of(name)
    pair, full = RunPair(edges.graph, CLEAN, CORRUPTED, value, Passes()), edges.graph.full()
    frozen = edges_by_gradient(pair, rules=Rules(norm="freeze"))[:, -1]
    exact = edges_by_gradient(pair)[:, -1]
    for w in range(0, len(edges.graph.writers), 3):
        one = torch.zeros_like(full, dtype=torch.float64)
        one[-1, w] = 1.0 if name != "gemma2" else 4e-3  # its logits are capped
        more, less = edges.run(torch.stack([full + one, full - one]), norm="freeze")
        close((value(more) - value(less)) / float(2 * one.sum()), frozen[:, w], 1e-5)
    assert float((frozen - exact).abs().max()) > 1e-3


@pytest.mark.parametrize("name", EVERY_NORMED)
def test_the_model_stays_as_it_was(name):
    module = edges_of(name).model.module
    fresh = FAMILIES[name].build()
    for key, weight in fresh.named_parameters():
        assert torch.equal(weight, module.get_parameter(key)), key
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    with torch.no_grad():
        assert torch.equal(module(CLEAN).logits, fresh(CLEAN).logits)


@pytest.mark.parametrize("name", EVERY_NORMED)
def test_what_one_writer_changes_alone_is_measured_in_the_model(name):
    """The stream that enters the last block, with one head's columns of another run before it."""
    edges, names = edges_of(name), FAMILIES[name]
    got = edges.graph.changes_alone(edges.other.out, edges.base.out)
    module = edges.model.module
    project = module.get_submodule(f"{names.blocks}.1.{names.attention}.{names.output}")
    behind = module.get_submodule(f"{names.blocks}.1.{names.behind}")
    width = edges.base.z[1].shape[-1] // HEADS
    seen: list[Tensor] = []

    def exchange(_, args):
        x = args[0].clone()
        x[..., 2 * width : 3 * width] = edges.other.z[1][..., 2 * width : 3 * width]
        return (x,)

    hooks = [behind.register_forward_hook(lambda _, args, out: seen.append(out))]
    with torch.no_grad():
        module(CLEAN)
        hooks.append(project.register_forward_pre_hook(exchange))
        module(CLEAN)
    for hook in hooks:
        hook.remove()
    close(got[:, :, edges.graph.index["L1H2"]], seen[1] - seen[0])
    assert float((seen[1] - seen[0]).abs().max()) > 0.01


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("name", EVERY_NORMED)
def test_a_path_through_two_hops_equals_plain_hooks(name, few):
    """The second head writes what it makes of the changed input; nothing else reads the first."""
    edges, graph = edges_of(name), edges_of(name).graph
    batch = SimpleNamespace(clean=CLEAN, corrupted=CORRUPTED, read_at=READ)
    paths = _Paths(graph, batch, value, "freeze")
    start = ["L0H1", "L0H3"] if few else ["embed", "L0H0", "L0H1", "L0H3", "mlp0", "L1H0", "mlp1"]
    [route] = routes_of(graph, f"{'+'.join(start)}>2.0.v>logits")
    one = graph.mask([(writer, "L2H0.v") for writer in start]).double()
    with torch.no_grad():
        _, out = forward(
            FAMILIES[name],
            edges.model.module,
            CLEAN,
            lambda w, r: float(1 - one[graph.reader_index[r], graph.index[w]]),
            other_of(name),
        )
        _, plain = forward(FAMILIES[name], edges.model.module, CLEAN, lambda *_: 1.0)
        logits, _ = forward(
            FAMILIES[name],
            edges.model.module,
            CLEAN,
            lambda w, r: float((w, r) != ("L2H0", "logits")),
            plain | {"L2H0": out["L2H0"]},
        )
    close(paths.effect(route), value(edges.base.logits) - value(logits))


@pytest.mark.parametrize("name", ["gemma2", "phi"])
def test_results_say_what_is_done_with_the_norm(name):
    model = edges_of(name).model
    pairs = induction_pairs(model, 12, length=4)
    clean, corrupted = pairs.values(model)
    task = pairs.some(np.flatnonzero(clean > corrupted).tolist())
    found = [
        attribution_patching(model, task),
        gim_patching(model, task),
        exact_patching(model, task),
        exact_patching(model, task, "edge", norm="freeze"),
        verified_edges(model, task),
    ]
    through = "in 3 of 3 layers the sum of the heads is added to the stream through a norm: "
    said = [[x.removeprefix(through) for x in f.notes if x.startswith(through)] for f in found]
    again = ["it is computed again for every patch"]
    want = [["gradients go through it"], ["its scale is held"], again]
    want += [["its scale is held in edges"], again]
    assert said == (want if name == "gemma2" else [[]] * 5)
