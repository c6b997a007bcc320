"""Greedy removal of edges: against brute force on a model written out, and built-in circuits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from circuits.contrasts import induction_pairs
from circuits.slow_gpt2 import forward
from transformers import GPT2Config, GPT2LMHeadModel

import interp
from interp.circuits.find import find_circuit
from interp.circuits.methods import acdc
from interp.circuits.set_evaluation import evaluate_set
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError

BUILT_IN = {("embed", "L0H3.v"), ("L0H3", "L1H0.k"), ("L1H0", "logits")}


@pytest.fixture(scope="module")
def bystander_pairs(planted_bystander):
    return make_contrast(planted_bystander, "planted:bystander", n=6)


@pytest.fixture(scope="module")
def random_gpt2():
    """A model with random weights, and pairs on which its values differ."""
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 24, "n_positions": 12}
    torch.manual_seed(0)
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=None, initializer_range=0.4)
    model = interp.load(GPT2LMHeadModel(config).eval(), name="gpt2")
    pairs = induction_pairs(model, 4, length=5)
    return model, pairs.some([i for i in range(4) if i % 2 == 0])


def brute_force(model, task, threshold: float, rule: str, late: bool, kl: bool):
    """The kept edges, in plain sets and loops, on GPT-2 written out head by head."""
    module, names = model.module, interp.circuits.residual_graph.ResidualGraph.of(model)
    sides = []
    for batch in task.batches():
        ids = [torch.tensor([list(x) for x in p.ids]) for p in (batch.clean, batch.corrupted)]
        with torch.no_grad():
            full, _ = forward(module, ids[0], lambda w, r: 1)
            _, other = forward(module, ids[1], lambda w, r: 1)
        sides.append((batch, ids[0], other, full))

    def loss(kept: set) -> float:
        total = []
        for batch, ids, other, full in sides:
            with torch.no_grad():
                logits, _ = forward(module, ids, lambda w, r: float((w, r) in kept), other)
            if kl:
                for row, i in enumerate(batch.which):
                    at = list(task.task.positions[i])
                    p, q = (x[row, at].double().log_softmax(-1) for x in (full, logits))
                    total.append(float((p.exp() * (p - q)).sum(-1).mean()))
            else:
                total += (-batch.value(logits)).tolist()
        return float(np.mean(total))

    kept = set(names.edges)
    now = loss(kept)
    for reader in reversed(names.readers):
        used = reader.kind == "logits" or any(a == reader.node for a, _ in kept)
        into = [a for a in names.writers[: reader.n_before] if (a, reader.name) in kept]
        for writer in into[::-1] if late else into:
            if not used:
                kept.remove((writer, reader.name))
                continue
            new = loss(kept - {(writer, reader.name)})
            change = abs(new - now) if rule == "absolute" else new - now
            if change < threshold:
                kept.remove((writer, reader.name))
                now = new
    return kept


@pytest.mark.parametrize(
    ("rule", "metric", "parents"),
    [("increase", "task", "late"), ("absolute", "task", "early"), ("increase", "kl", "late")],
)
def test_brute_force_keeps_the_same_edges(random_gpt2, rule, metric, parents) -> None:
    model, task = random_gpt2
    # with random weights the pairs differ by chance, and a gap of either sign is enough here
    scale = {"task": 0.05, "kl": 0.02}[metric]
    found = acdc(model, task, threshold=scale, rule=rule, metric=metric, parents=parents)
    kept = {
        e
        for e, told in zip(found.edges, found.edges_measured, strict=True)
        if told == "removed after others"
    }
    want = brute_force(model, task, scale, rule, parents == "late", metric == "kl")
    assert kept == want
    assert 3 < len(kept) < len(found.edges) - 3
    removed = [row for row in found.tables["removals"] if row["decision"] == "removed"]
    assert any(row["change"] < -scale for row in removed) == (
        rule == "increase" and metric == "task"
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"rule": "absolute", "metric": "kl", "parents": "early"}, {"max_evaluations": 40}],
    ids=str,
)
def test_the_built_in_edges_stay(planted_bystander, bystander_pairs, options) -> None:
    found = find_circuit(planted_bystander, bystander_pairs, "acdc", **options)
    chosen = found.chosen
    assert set(chosen.edges) == BUILT_IN
    assert set(chosen.nodes) == {"embed", "L0H3", "L1H0"}
    assert chosen.kept == pytest.approx(1, abs=0.01)
    scored = {e for e, s in zip(found.edges, found.edge_score, strict=True) if s}
    assert scored == BUILT_IN
    assert found.made["forwards"] <= (options.get("max_evaluations") or len(found.edges) + 5)
    fresh = make_contrast(planted_bystander, "planted:bystander", n=6, seed=1)
    measured = evaluate_set(planted_bystander, found, fresh, n_random=3)
    assert measured.faithfulness[0] == pytest.approx(1, abs=0.01)


def test_threshold_zero_keeps_every_edge_by_absolute_change(
    planted_bystander, bystander_pairs
) -> None:
    every = acdc(planted_bystander, bystander_pairs, threshold=0.0, rule="absolute")
    assert set(every.edges_measured) == {"removed after others"}
    assert every.forwards == len(every.edges) + 5
    some = acdc(planted_bystander, bystander_pairs, threshold=0.0)
    gone = [row for row in some.tables["removals"] if row["decision"] == "removed"]
    assert all(row["change"] < 0 for row in gone)  # only what improves the task is removed


def test_nodes_as_wholes(planted_bystander, bystander_pairs) -> None:
    found = find_circuit(planted_bystander, bystander_pairs, "acdc", "head")
    assert set(found.chosen.nodes) == {"embed", "L0H3", "L1H0"}
    assert found.edges == ()
    assert [row["node"] for row in found.tables["removals"]][-1] == "embed"


def test_of_heads_that_stand_in_for_each_other_the_last_goes_first() -> None:
    model = interp.load("planted:backup")
    task = make_contrast(model, "planted:backup", n=4)
    nodes = find_circuit(model, task, "acdc").chosen.nodes
    assert "L1H0" in nodes
    assert "L2H0" not in nodes  # the backup is removed while its primary works


def test_what_cannot_be_done_is_said(planted_bystander, bystander_pairs) -> None:
    def run(**options):
        return acdc(planted_bystander, bystander_pairs, **options)

    with pytest.raises(OptionError, match=r"threshold=100 logits keeps no path .* largest change"):
        run(threshold=100.0)
    with pytest.raises(OptionError, match="rule='less'; expected increase or absolute"):
        run(rule="less")
    with pytest.raises(OptionError, match="metric='loss'; expected task"):
        run(metric="loss")
    with pytest.raises(OptionError, match="parents='both'; expected late or early"):
        run(parents="both")
    with pytest.raises(OptionError, match=r"threshold=-1\.0; a threshold is 0 or more"):
        run(threshold=-1.0)
    with pytest.raises(OptionError, match="max_evaluations=4; the runs, the choice of edges"):
        run(max_evaluations=4)


def test_what_estimates_removed_is_measured(planted_bystander, bystander_pairs) -> None:
    (note,) = acdc(planted_bystander, bystander_pairs, max_evaluations=40).notes
    assert "were removed first, not one by one: together that loses" in note
    assert "more than the threshold" not in note
    model = interp.load("bundled:induction")
    found = acdc(model, make_contrast(model, "induction", n=4), max_evaluations=60)
    untried = [row for row in found.tables["removals"] if row["decision"] == "below the screen"]
    assert len(untried) > 100
    assert "more than the threshold, so edges of the circuit are among them" in found.notes[0]
