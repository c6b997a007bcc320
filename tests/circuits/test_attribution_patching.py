"""The gradient family: against TransformerLens, finite differences, real forwards, identities."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
import zoo
from circuits.transformer_lens_scores import CLEAN, CORRUPTED, value

import interp
from interp.attribution.example import Example
from interp.attribution.gradients import gradient
from interp.attribution.rules import Rules
from interp.attribution.target import Target
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.methods._attribution import (
    RunPair,
    edges_along_activations,
    edges_along_inputs,
    edges_by_gradient,
    nodes_along_activations,
    nodes_along_inputs,
    nodes_by_gradient,
    nodes_with_drops,
)
from interp.circuits.methods._exact import node_effects
from interp.circuits.methods._gradients import GIM, Backward, Passes
from interp.circuits.residual_graph import ResidualGraph
from interp.core.errors import NonFiniteError, OptionError

FAMILIES = ("gpt2", "llama", "gpt_neox", "gpt_neo", "falcon", "granite", "qwen3")
SCORES = Path(__file__).with_name("transformer_lens_scores.py")


@cache
def graph_of(name: str) -> ResidualGraph:
    family = zoo.FAMILIES[name]
    return ResidualGraph.of(interp.load(family.build(family.attentions[-1]), name=name))


@cache
def edges_of(name: str) -> EdgeForward:
    return EdgeForward(graph_of(name), CLEAN, CORRUPTED)


def pair_of(name: str) -> RunPair:
    return RunPair(graph_of(name), CLEAN, CORRUPTED, value, Passes())


def close(a, b, atol=1e-5, rtol=1e-4):
    torch.testing.assert_close(a.double(), b.double(), atol=atol, rtol=rtol)


# --- against TransformerLens --------------------------------------------------------------------


@pytest.fixture(scope="module")
def lens_scores(tmp_path_factory):
    out = tmp_path_factory.mktemp("tl") / "scores.pt"
    subprocess.run(
        [sys.executable, "-W", "ignore", str(SCORES), str(out), "gpt2", "llama", "gpt_neox"],
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SCORES.parents[1]), *sys.path])},
        timeout=300,
    )
    return torch.load(out)


needs_tl = pytest.mark.skipif(
    importlib.util.find_spec("transformer_lens") is None,
    reason="transformer-lens is not installed (the extra `tl`)",
)


@needs_tl
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox"])
def test_every_node_scores_as_in_transformer_lens(lens_scores, name):
    got = nodes_by_gradient(pair_of(name), at="corrupted").mean(0)
    want = torch.tensor([lens_scores[name]["nodes"][w] for w in graph_of(name).writers])
    assert float(want.abs().max()) > 0.3
    close(got, want, atol=3e-6)


@needs_tl
@pytest.mark.slow
def test_every_edge_scores_as_in_transformer_lens(lens_scores):
    graph, want = graph_of("gpt2"), lens_scores["gpt2"]["edges"]
    got = edges_by_gradient(pair_of("gpt2"), at="corrupted").mean(0)
    assert set(want) == set(graph.edges)
    mine = torch.stack([got[graph.reader_index[r], graph.index[w]] for w, r in graph.edges])
    close(mine, torch.tensor([want[e] for e in graph.edges]), atol=3e-6)


# --- against derivatives of real forwards -------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_edge_scores_are_derivatives_of_edge_forwards(name):
    """One edge a little off its own value, at both sides: a finite difference of real forwards."""
    graph, edges = graph_of(name), edges_of(name)
    scores = edges_by_gradient(pair_of(name))
    draw = torch.Generator().manual_seed(1)
    readers = torch.randint(len(graph.readers) - 1, (12,), generator=draw).tolist()
    for r in [*readers, len(graph.readers) - 1]:
        w = int(torch.randint(graph.readers[r].n_before, (1,), generator=draw))
        one = torch.zeros_like(graph.full())
        one[r, w] = 1e-2
        more, less = edges.run(torch.stack([graph.full() + one, graph.full() - one]))
        close((value(more) - value(less)) / 2e-2, scores[:, r, w], atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("at", ["clean", "corrupted"])
def test_edges_that_leave_a_node_add_up_to_its_score(name, at):
    pair = pair_of(name)
    close(edges_by_gradient(pair, at=at).sum(1), nodes_by_gradient(pair, at=at))


def test_edges_that_enter_a_reader_add_up_to_its_first_order_change():
    pair = pair_of("llama")
    graph, scores = pair.graph, edges_by_gradient(pair)
    run = Backward(graph, CLEAN, value)
    for i, (reader, g) in enumerate(run.readers()):
        change = pair.on_clean.read(reader) - pair.on_corrupted.read(reader)
        close(scores[:, i].sum(1), (change * g).sum((1, 2)))


def test_no_score_where_there_is_no_edge():
    graph = graph_of("gpt2")
    scores = edges_by_gradient(pair_of("gpt2"))
    assert not bool(scores[:, graph.full() == 0].any())
    assert bool((scores[:, graph.full() == 1] != 0).any(0).all())


# --- along paths --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "gpt_neox"])
def test_along_inputs_the_embeddings_get_the_whole_difference(name):
    """The gradient by the first stream, integrated, is complete: and it is all of its edges'."""
    pair = pair_of(name)
    whole = value(pair.on_clean.logits) - value(pair.on_corrupted.logits)
    errors = []
    for steps in (4, 16, 64):
        scores = edges_along_inputs(pair, steps=steps)
        errors.append(float((scores[:, :, 0].sum(1) - whole).abs().max()))
        close(scores.sum(1), nodes_along_inputs(pair, steps=steps))
    assert errors[2] < 0.01 * float(whole.abs().max())
    assert errors[2] < errors[0] / 4


@pytest.mark.slow
def test_along_activations_a_layers_heads_get_what_patching_all_of_them_does():
    pair = pair_of("gpt2")
    graph, edges = pair.graph, edges_of("gpt2")
    scores = edges_along_activations(pair, steps=48)
    close(scores.sum(1), nodes_along_activations(pair, steps=48))
    base = value(edges.base.logits)
    for layer in graph.layers:
        mask = graph.full()
        mask[:, graph.heads_of(layer)] = 0
        patched = base - value(edges.run(mask))
        close(scores[:, :, graph.heads_of(layer)].sum((1, 2)), patched, atol=2e-3, rtol=1e-2)
    for name in ("embed", "mlp0", "mlp1", "mlp2"):
        patched = node_effects(edges, value, [name])[0]
        close(scores[:, :, graph.index[name]].sum(1), patched, atol=2e-3, rtol=1e-2)


def test_one_backward_pass_is_further_from_the_truth_than_many():
    pair = pair_of("gpt2")
    exact = node_effects(edges_of("gpt2"), value, pair.graph.writers).T
    once = nodes_by_gradient(pair)
    many = nodes_along_activations(pair, steps=16)
    assert float((many - exact).abs().mean()) < 0.7 * float((once - exact).abs().mean())


# --- rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox"])
@pytest.mark.parametrize("rules", [GIM, Rules(norm="freeze"), Rules(temperature=3.0)], ids=str)
def test_gradients_under_rules_are_those_of_the_attribution_room(name, rules):
    graph = graph_of(name)
    run = Backward(graph, CLEAN[:1], value, rules=rules)
    target = Target("value", lambda logits, real: value(logits), -1, "logit")
    want = gradient(Example(graph.model, CLEAN[:1], target), rules).gradients
    close(run.embed, want, atol=1e-6)
    plain = Backward(graph, CLEAN[:1], value).embed
    assert float((run.embed - plain).abs().max()) > 0.01 * float(plain.abs().max())
    total = sum(g for reader, g in run.readers() if reader.n_before)
    close(total, want, atol=1e-5)  # every reader reads the first stream


def test_the_forward_of_a_backward_is_the_models_own():
    for rules in (Rules(), GIM):
        run = Backward(graph_of("gpt2"), CLEAN, value, rules=rules)
        close(run.values, value(graph_of("gpt2").model.run(CLEAN)))


def test_dropping_a_layer_takes_its_part_out_of_the_gradient():
    pair = pair_of("gpt2")
    graph = pair.graph
    run = Backward(graph, CLEAN, value, dropped=1)
    last = graph.layers[-1].order
    plain = Backward(graph, CLEAN, value)
    close(run.by_head[last], plain.by_head[last])  # nothing of layer 1 lies above
    assert not bool(run.by_head[1].any())
    assert not bool(run.mlps[1].any())
    # mlp0 is read by layers 1 and 2 and at the end: without layer 1 the other edges are left
    edges, mlp = edges_by_gradient(pair), graph.index["mlp0"]
    left = [i for i, r in enumerate(graph.readers) if r.order >= 2]
    close((pair.delta[:, :, mlp] * run.mlps[0]).sum((1, 2)), edges[:, left, mlp].sum(1))
    drops = nodes_with_drops(pair)
    assert bool((drops >= 0).all())
    # of the last layer only the runs that drop others count, and they change nothing above it
    heads = graph.heads_of(graph.layers[-1])
    close(drops[:, heads], nodes_by_gradient(pair)[:, heads].abs())


def test_drops_are_the_mean_size_over_the_layers_dropped():
    pair = pair_of("gpt2")
    graph, mlp = pair.graph, pair.graph.index["mlp0"]
    sizes = []
    for dropped in range(3):
        if dropped == 2:  # readers of layer 1 get another gradient: its own identity, by a run
            run = Backward(graph, CLEAN, value, dropped=2)
            sizes.append((pair.delta[:, :, mlp] * run.mlps[0]).sum((1, 2)).abs())
        elif dropped == 1:
            left = [i for i, r in enumerate(graph.readers) if r.order >= 2]
            sizes.append(edges_by_gradient(pair)[:, left, mlp].sum(1).abs())
    close(nodes_with_drops(pair)[:, mlp], (sizes[0] + sizes[1]) / 2)
    with pytest.raises(OptionError, match="two layers"):
        nodes_with_drops(_one_layer())


def _one_layer() -> RunPair:
    module = zoo.FAMILIES["gpt2"].build("eager")
    module.transformer.h = module.transformer.h[:1]
    graph = ResidualGraph.of(interp.load(module, name="one layer"))
    return RunPair(graph, CLEAN, CORRUPTED, value, Passes())


# --- refusals -----------------------------------------------------------------------------------


def test_bad_input_by_name():
    graph, pair = graph_of("gpt2"), pair_of("gpt2")
    with pytest.raises(OptionError, match="clean or corrupted"):
        edges_by_gradient(pair, at="nowhere")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="smoothly"):
        Backward(graph, CLEAN, lambda logits: (logits[:, -1].argmax(-1) == 5).float())
    with pytest.raises(NonFiniteError, match="gradient"):
        Backward(graph, CLEAN, lambda logits: (logits[:, -1, 5] * 0).sqrt())


def test_weights_and_modes_are_left_as_they_were():
    module = graph_of("gpt2").model.module
    before = [p.requires_grad for p in module.parameters()]
    Backward(graph_of("gpt2"), CLEAN, value, rules=GIM)
    assert [p.requires_grad for p in module.parameters()] == before
    assert all(p.grad is None for p in module.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def test_the_gradient_is_taken_where_it_is_asked_for():
    pair = pair_of("gpt2")
    back = RunPair(graph_of("gpt2"), CORRUPTED, CLEAN, value, Passes())
    close(nodes_by_gradient(pair, at="corrupted"), -nodes_by_gradient(back, at="clean"))
    assert float((nodes_by_gradient(pair) + nodes_by_gradient(back)).abs().max()) > 0.01
