"""Computed softmaxes: against real forwards on saturated attention, and against z by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from circuits.contrasts import induction_pairs
from circuits.transformer_lens_scores import CLEAN, CORRUPTED, value

import interp
from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit, score_nodes
from interp.circuits.methods._attribution import RunPair, edges_by_gradient, nodes_with_drops
from interp.circuits.methods._exact import effects_of_masks, path_effects
from interp.circuits.methods._gradients import Backward, Passes
from interp.circuits.methods._qk_fix import fixed_scores
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError
from interp.core.prompts import Prompts

QK = ("q", "k")
FAMILIES = ("gpt2", "llama", "gpt_neox", "falcon", "granite", "qwen3")
NORMED = [pytest.param(name, marks=pytest.mark.slow) for name in ("gemma3", "olmo2")]


def edges_fixed(pair: Any, at: Any = "clean") -> Any:
    return fixed_scores(pair, at=at).edges[0]


def close(a, b, atol=1e-5, rtol=1e-4):
    torch.testing.assert_close(
        torch.as_tensor(a).double(), torch.as_tensor(b).double(), atol=atol, rtol=rtol
    )


# --- a planted case: attention is saturated, and what follows the pattern is linear -------------


def query_pairs(model, n: int = 6) -> ContrastTask:
    """`a b .. c d .. a` asks for b; corrupted, c stands at the end and asks for d."""
    rng = np.random.default_rng(0)
    clean, corrupted, right, wrong = [], [], [], []
    for _ in range(n):
        a, b, c, d, *rest = rng.permutation(np.arange(3, model.d_vocab))[:8].tolist()
        body = (0, a, b, rest[0], c, d, *rest[1:])
        clean.append((*body, a))
        corrupted.append((*body, c))
        right.append(b)
        wrong.append(d)
    task = logit_difference(
        model, Prompts(tuple(clean)), right, wrong, corrupted=Prompts(tuple(corrupted))
    )
    return ContrastTask(task)


def exact_input(model, task, name) -> np.ndarray:
    """What patching one input of a head as a whole does, by a real forward."""
    graph, found = ResidualGraph.of(model), np.zeros(len(task))
    mask = graph.full()
    mask[graph.reader_index[name]] = 0
    for batch in task.batches():
        edges = EdgeForward(graph, batch.clean, batch.corrupted)
        found[list(batch.which)] = effects_of_masks(edges, batch.value, mask[None])[0].numpy()
    return found


@pytest.mark.parametrize(("part", "pairs"), [("q", query_pairs), ("k", induction_pairs)])
def test_a_saturated_head_gets_its_exact_effect(part, pairs) -> None:
    model = interp.load("planted:induction")
    task = pairs(model)
    found = score_nodes(model, task, "attribution_patching", "edge", qk_fix=True)
    row = {(r["head"], r["input"]): r for r in found.tables["inputs"]}["L1H0", part]
    exact = exact_input(model, task, f"L1H0.{part}").mean()
    assert exact > 9  # another query, or key, turns the head over
    assert row["score"] == pytest.approx(exact, abs=1e-3)
    assert abs(row["plain"]) < 0.05 * exact  # the slope of a saturated softmax is nothing
    # every edge into it as well, and without the fix none
    plain = score_nodes(model, task, "attribution_patching", "edge")
    graph = ResidualGraph.of(model)
    at = [i for i, (_, b) in enumerate(graph.edges) if b == f"L1H0.{part}"]
    want = np.zeros((len(at), len(task)))
    for batch in task.batches():
        edges = EdgeForward(graph, batch.clean, batch.corrupted)
        paths = [graph.edges[i] for i in at]
        want[:, list(batch.which)] = path_effects(edges, batch.value, paths).numpy()
    np.testing.assert_allclose(found.edges_per_prompt[at], want, atol=2e-3)
    assert np.abs(want).max() > 9
    assert np.abs(plain.edges_per_prompt[at]).max() < 0.5


def test_where_the_slope_points_the_wrong_way() -> None:
    """Some queries of random heads: the sign of what they do is that of the computed softmax."""
    model = interp.load("planted:bystander")
    task = query_pairs(model, 12)
    found = score_nodes(model, task, "attribution_patching", qk_fix=True)
    wrong = 0
    for row in found.tables["inputs"]:
        if row["input"] != "v":
            exact = exact_input(model, task, f"{row['head']}.{row['input']}").mean()
            assert row["score"] == pytest.approx(exact, abs=3e-5)
            wrong += abs(exact) > 1e-3 and row["plain"] * exact < 0
    assert wrong >= 1


def test_the_fix_finds_a_circuit_that_the_slope_does_not() -> None:
    model = interp.load("planted:bystander")
    task = make_contrast(model, "planted:bystander", n=12)
    plain, fixed = (
        evaluate_circuit(
            model, find_circuit(model, task, "attribution_patching", qk_fix=q), task, n_random=2
        )
        for q in (False, True)
    )
    score = fixed.circuit.score[fixed.circuit.nodes.index("L0H3")]
    assert score == pytest.approx(10, abs=0.1)  # what the previous-token head is worth
    assert abs(plain.circuit.score[plain.circuit.nodes.index("L0H3")]) < 0.1
    assert fixed.against_truth()["auroc"] == 1.0 > plain.against_truth()["auroc"]
    assert fixed.chosen_faithfulness > 0.95 > plain.chosen_faithfulness


# --- on architectures: what follows the pattern is z times its gradient -------------------------


@cache
def graph_of(name: str) -> ResidualGraph:
    family = zoo.FAMILIES[name]
    return ResidualGraph.of(interp.load(family.model(family.attentions[-1]), name=name))


def pair_of(name: str) -> RunPair:
    return RunPair(graph_of(name), CLEAN, CORRUPTED, value, Passes())


def z_of(graph: ResidualGraph, order: int, edges: EdgeForward, mask) -> torch.Tensor:
    """What the heads of a layer give their output projection under a mask."""
    seen: list[torch.Tensor] = []
    site = graph.layers[order].site
    module = graph.model.module.get_submodule(site.projection)
    handle = module.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    try:
        edges.run(mask)
    finally:
        handle.remove()
    return seen[-1].reshape(len(CLEAN), -1, site.n_heads, site.d_v)


@pytest.mark.parametrize("name", [*FAMILIES, *NORMED])
def test_scores_are_the_change_of_z_in_a_real_forward(name) -> None:
    pair, graph = pair_of(name), graph_of(name)
    scores = edges_fixed(pair)
    gradient = Backward(graph, CLEAN, value).by_head
    edges = EdgeForward(graph, CLEAN, CORRUPTED)
    draw = np.random.default_rng(0)
    readers = [r for r in graph.readers if r.part in QK]
    for i in draw.choice(len(readers), 8, replace=False):
        reader = readers[i]
        writer = graph.writers[int(draw.integers(reader.n_before))]
        mask = graph.full() - graph.mask([(writer, reader.name)])
        patched = z_of(graph, reader.order, edges, mask)
        own = edges.base.z[reader.order].reshape(patched.shape)
        change = (own - patched)[:, :, reader.head]
        want = (gradient[reader.order][:, :, reader.head] * change).sum((1, 2))
        got = scores[:, graph.reader_index[reader.name], graph.index[writer]]
        close(got, want, atol=3e-6, rtol=1e-3)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_other_edges_stay_as_they_are(name) -> None:
    graph, plain, fixed = (
        graph_of(name),
        edges_by_gradient(pair_of(name)),
        edges_fixed(pair_of(name)),
    )
    rest = [i for i, r in enumerate(graph.readers) if r.part not in QK]
    close(fixed[:, rest], plain[:, rest])
    mine = [i for i, r in enumerate(graph.readers) if r.part in QK]
    assert float((fixed[:, mine] - plain[:, mine]).abs().max()) > 1e-4
    assert not bool(fixed[:, graph.full() == 0].any())


def test_small_changes_have_the_slope() -> None:
    """Where the two sides hardly differ, a computed softmax and its slope say the same."""
    near, small = pair_of("gpt2"), 1e-3
    moved = near.on_clean.out + small * (near.on_corrupted.out - near.on_clean.out)
    near.on_corrupted = replace(near.on_corrupted, out=moved)
    close(edges_fixed(near) / small, edges_by_gradient(near) / small, atol=1e-3, rtol=2e-2)


def test_at_the_corrupted_side_roles_are_exchanged() -> None:
    graph = graph_of("gpt2")
    back = RunPair(graph, CORRUPTED, CLEAN, value, Passes())
    close(edges_fixed(pair_of("gpt2"), at="corrupted"), -edges_fixed(back, at="clean"))


def test_with_drops_it_is_the_mean_size_over_layers() -> None:
    pair, graph = pair_of("gpt2"), graph_of("gpt2")
    runs = fixed_scores(pair, drops=True).edges
    assert len(runs) == len(graph.layers)
    for dropped, edges in enumerate(runs):
        heads = [i for i, r in enumerate(graph.readers) if r.order == dropped and r.part in QK]
        assert not bool(edges[:, heads].any())  # a dropped layer's patterns do nothing
    model = interp.load("planted:bystander")
    task = make_contrast(model, "planted:bystander", n=6)
    found = score_nodes(model, task, "attribution_patching", qk_fix=True, grad_drop=True)
    assert (found.per_prompt >= 0).all()
    assert not found.signed
    by_name = dict(zip(found.nodes, found.per_prompt.mean(1), strict=True))
    assert by_name["L0H3"] == pytest.approx(10, abs=0.1)
    # only the drop of its own layer's readers takes it away; of two layers one is left
    plain = nodes_with_drops(pair)
    assert plain.shape == runs[0].sum(1).shape
    with pytest.raises(OptionError, match="leave it out for edges"):
        score_nodes(model, task, "attribution_patching", "edge", qk_fix=True, grad_drop=True)


def test_what_it_costs_is_counted() -> None:
    pair = pair_of("gpt2")
    before = pair.passes.forwards
    edges_fixed(pair)
    graph = pair.graph
    reads = sum(graph.readers[graph.reader_index[f"L{i}H0.q"]].n_before + 1 for i in range(3))
    assert pair.passes.forwards - before == pytest.approx(2 + reads / 3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:.*:UserWarning:jax")
def test_on_a_compiled_program_the_last_softmax_is_exact() -> None:
    """Attention of `sort` is all or nothing; behind its last pattern the output is linear."""
    from circuits.test_tracr import setting

    graph, clean, corrupted, of_output = setting("sort")
    pair = RunPair(graph, clean, corrupted, of_output, Passes())
    edge = ("mlp1", "L2H0.k")  # where each word belongs
    at = (graph.reader_index[edge[1]], graph.index[edge[0]])
    edges = EdgeForward(graph, clean, corrupted)
    (exact,) = path_effects(edges, of_output, [edge])
    assert float(exact.abs().mean()) > 0.2
    close(edges_fixed(pair)[:, *at], exact, atol=1e-4)
    assert float(edges_by_gradient(pair)[:, *at].abs().max()) < 0.01
