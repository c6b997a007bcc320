"""Trained edge masks on models whose edges are built in, and their failures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp import planted
from interp.circuits.find import find_circuit
from interp.circuits.methods import edge_masks
from interp.circuits.methods._trained_masks import MaskObjective, Training, fit_mask
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.tasks.planted_pairs import circuit_edges, contrast
from interp.core.errors import NonFiniteError, OptionError
from interp.model.locate.probe import probe


@pytest.fixture(scope="module")
def short_bystander():
    built = planted.build("bystander", vocab=20, context=16)
    model = probe(built.model, "planted:bystander")
    return built, model, contrast(model, built, n=8)


def gates_of(graph):
    width = len(graph.writers)
    return [torch.tensor([graph.reader_index[b] * width + graph.index[a]]) for a, b in graph.edges]


@pytest.mark.slow
def test_the_built_in_edges_stay_open(short_bystander) -> None:
    built, model, task = short_bystander
    found = find_circuit(model, task, "edge_masks", steps=160, restarts=1)
    chosen = found.chosen
    heads = {e for e in chosen.edges if e[0][0] == "L" and e[1] != "logits"}
    assert heads == set(circuit_edges(built))
    assert len(chosen.edges) == 3
    [row] = found.tables["restarts"]
    assert row["held_out"] == pytest.approx(1, abs=0.02)
    assert row["held_out_pairs"] == 4
    gates = dict(zip(found.edges, found.edge_score, strict=True))
    assert min(gates[e] for e in chosen.edges) > 0.5
    assert np.mean([gates[e] < 0.5 for e in gates if e not in chosen.edges]) > 0.95


def test_a_short_training_leaves_every_gate_open(short_bystander) -> None:
    _, model, task = short_bystander
    found = edge_masks(model, task, steps=2, restarts=2)
    assert found.columns == "restarts"
    assert found.edges_per_prompt.shape == (len(found.edges), 2)
    assert (found.edges_per_prompt > 0.5).all()
    assert found.tables["restarts"][0]["edges"] > 50
    assert found.tables["restarts"][0]["held_out"] == pytest.approx(1, abs=1e-3)
    assert found.forwards == 3 + 2 + 2 * 2 * 0.5  # half of the pairs are fitted
    heads = edge_masks(model, task, "head", steps=2, restarts=1, metric="task")
    assert heads.edges == ()
    assert heads.per_prompt.shape == (len(heads.nodes), 1)


def test_the_same_seed_gives_the_same_gates(short_bystander) -> None:
    _, model, task = short_bystander
    one, two, other = (edge_masks(model, task, steps=3, restarts=1, seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(one.edges_per_prompt, two.edges_per_prompt)
    assert (one.edges_per_prompt != other.edges_per_prompt).any()


@pytest.mark.parametrize("metric", ["kl", "task"])
def test_the_loss_is_0_for_the_model_and_1_for_the_corrupted_run(short_bystander, metric) -> None:
    _, model, task = short_bystander
    graph = ResidualGraph.of(model)
    objective = MaskObjective(graph, task, gates_of(graph), metric)
    for value, want in ((1.0, 0.0), (0.0, 1.0)):
        loss = objective.loss(0, torch.full((len(graph.edges),), value, dtype=torch.double))
        assert float(loss) == pytest.approx(want, abs=1e-3)
    built = graph.mask([("embed", "L0H3.v"), ("L0H3", "L1H1.k"), ("L1H1", "logits")])
    gates = torch.tensor([float(built.flatten()[i]) for i in torch.cat(gates_of(graph))])
    assert float(objective.loss(0, gates.double())) == pytest.approx(0, abs=0.02)


def test_divergence_is_an_error(short_bystander, monkeypatch) -> None:
    _, model, task = short_bystander
    graph = ResidualGraph.of(model)
    objective = MaskObjective(graph, task, gates_of(graph), "kl")
    plain = objective.loss
    monkeypatch.setattr(objective, "loss", lambda n, gates: plain(n, gates) * float("nan"))
    with pytest.raises(NonFiniteError, match="training of the edge masks diverges at step 1"):
        fit_mask(objective, len(graph.edges), Training(0.05, 5, 0.1, "kl"), 0)


def test_options_out_of_range_are_refused(short_bystander) -> None:
    _, model, task = short_bystander
    for options, said in (
        ({"target": 1.0}, r"target=1\.0; the share of open gates"),
        ({"steps": 0}, "steps=0, restarts=2"),
        ({"rate": 0.0}, r"rate=0\.0; give at least"),
        ({"metric": "loss"}, "metric='loss'; expected task"),
    ):
        with pytest.raises(OptionError, match=said):
            edge_masks(model, task, **options)
