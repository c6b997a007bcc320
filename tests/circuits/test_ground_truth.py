"""Circuit methods on models whose circuit is known: statistics and cheap rows of the benchmark."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from sampled import sampled

import interp
from benchmarks.ground_truth import (
    SEEDS,
    Truth,
    against,
    areas,
    cases,
    class_of,
    compared,
    measured,
)
from benchmarks.ground_truth_page import ground_truth_page
from benchmarks.ground_truth_peers import SCRIPTS, _found, pairs_of, peer_results
from benchmarks.ground_truth_roles import role_row, role_table
from benchmarks.ground_truth_sets import sets_table
from interp.circuits.edge_evaluation import comparable
from interp.circuits.find import DEFAULT, score_nodes
from interp.circuits.tasks import TASKS, make_contrast
from interp.core.random_state import drawn_with
from interp.core.rank_statistics import auroc
from interp.heads.roles.declared import role_named
from interp.planted.trained import untrained
from interp.planted.trained.cases import CASES

ROWS = Path(__file__).parents[2] / "benchmarks" / "ground_truth.json"


def test_areas_are_those_of_the_toolkit_and_of_counting() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(-3, 4, (20, 9)).astype(float)
    true = np.arange(9) < 3
    size = np.abs(scores)
    for row, found in zip(size, areas(scores, true), strict=True):
        wins = [(a > b) + 0.5 * (a == b) for a in row[true] for b in row[~true]]
        assert found == pytest.approx(np.mean(wins))
        assert found == pytest.approx(auroc(row, true))
    tiny = np.array([[1.0, 1e-9, 0.0, 0.0]])
    assert areas(tiny, np.array([True, True, False, False]))[0] == 0.75  # 1e-9 is a tie at 0


def test_a_permutation_test_of_few_nodes_is_exact_up_to_its_draws() -> None:
    values = np.arange(6.0)[:, None] + np.zeros((6, 4))
    true = np.arange(6) >= 4
    row = against(values, true, 0)
    assert row["auroc"] == 1.0
    assert (row["low"], row["high"]) == (1.0, 1.0)
    assert row["p"] == pytest.approx(1 / math.comb(6, 2), abs=0.03)
    reached = [set(c) == {4, 5} for c in combinations(range(6), 2)]
    assert sum(reached) == 1
    assert against(values, np.ones(6, dtype=bool), 0)["auroc"] is None
    noisy = np.random.default_rng(1).normal(size=(40, 8))
    drawn = against(noisy, np.arange(40) < 10, 0)
    assert drawn["low"] < drawn["auroc"] < drawn["high"]
    assert drawn["p"] > 0.05


def test_nodes_that_cannot_be_mistaken_do_not_count() -> None:
    model = interp.load("compiled:shift_by+count")
    task = make_contrast(model, "compiled:count", n=6)
    truth = Truth(model, task)
    at = dict(zip(truth.nodes, truth.true.tolist(), strict=True))
    assert at == {"L0H0": False, "L0H1": True, "mlp0": True}  # the other program's head counts
    assert {e for e, t in zip(truth.edges, truth.true_edges, strict=True) if t} == set(
        task.truth_edges
    )
    one = interp.load("compiled:sort")  # its first head writes nothing
    assert "L0H0" not in Truth(one, make_contrast(one, "compiled:sort", n=6)).nodes


def test_edges_of_trained_models_are_pairs_of_nodes() -> None:
    model = interp.load("trained:induction")
    truth = Truth(model, make_contrast(model, "trained:induction", n=6))
    assert {e for e, t in zip(truth.edges, truth.true_edges, strict=True) if t} == {
        ("L0H1", "L1H2")
    }
    assert len(truth.edges) == 16


def test_edges_are_compared_with_those_of_their_kinds() -> None:
    every = [("embed", "L0H0.q"), ("L0H0", "L1H0.q"), ("L0H0", "mlp0"), ("mlp0", "logits")]
    assert comparable(every, [("L0H0", "L1H0.k")]) == (every[1],)
    assert comparable(every, [("L0H0", "mlp0")]) == tuple(every[1:3])
    assert comparable(every, [("embed", "L0H0.q"), ("mlp0", "logits")]) == tuple(every)


def test_every_task_of_a_known_circuit_is_a_case() -> None:
    listed = cases()
    assert {task for _, task in listed} == {name for name, about in TASKS.items() if about.model}
    assert len(listed) == len(set(listed))
    assert {class_of(model) for model, _ in listed} == {
        "trained",
        "joined programs",
        "programs",
        "planted",
    }


def test_the_page_is_that_of_its_rows() -> None:
    rows = json.loads(ROWS.read_text(encoding="utf-8"))
    page = ground_truth_page(rows, [f"{m} {t}" for m, t in cases()])
    assert ROWS.with_suffix(".md").read_text(encoding="utf-8") == page
    gone = [row | {"method": "nosuch", "note": "why it failed"} for row in rows[:1]]
    assert "| the GPT-2s before their training | 10 |" in page
    assert "| previous-token |" in page
    assert "CircuitKIT 0.2.0 EAP" in page
    assert "why it failed" in ground_truth_page([*rows, *gone], [])


def test_models_before_training_are_not_searched_for_circuits() -> None:
    """Two answers and pairs that are much alike: a small but real gap is significant in many."""
    case, model = CASES["brackets"], interp.load("trained:brackets")
    found = []
    for seed in range(8):
        with drawn_with(seed), torch.device("cpu"):
            other = interp.load(untrained(case).eval(), name="untrained", check=False)
        task = make_contrast(model, "trained:brackets", n=64, seed=seed)
        found.append(task.measured_gap(*task.values(other)))
    assert sum(gap.significant for gap in found) >= 2  # of which 0.2 are expected by chance
    assert sum(gap.shown for gap in found) < sum(gap.significant for gap in found)


def test_edges_of_heads_that_stand_in_for_each_other_are_found() -> None:
    """With both heads intact no edge from the previous-token head has an effect."""
    model = interp.load("planted:backup")
    task = make_contrast(model, "planted:backup", n=4)
    found = score_nodes(model, task, DEFAULT, "edge")
    assert found.edges_per_prompt is not None
    effect = dict(zip(found.edges, found.edges_per_prompt.mean(1).tolist(), strict=True))
    told = dict(zip(found.edges, found.edges_measured, strict=True))
    [first], [induction], [backup] = task.truth.values()
    assert told[first, f"{induction}.k"] == f"patched with {backup} out"
    assert told[first, f"{backup}.k"] == f"patched with {induction} out"
    assert told[induction, f"{backup}.q"] == "patched alone"
    least = 0.5 * max(map(abs, effect.values()))
    assert {edge for edge in task.truth_edges if abs(effect[edge]) > least} == {*task.truth_edges}


def test_a_peer_reads_the_prompts_up_to_the_answer(tmp_path) -> None:
    model = interp.load("trained:two_circuits")
    name = "trained:two_circuits:induction"
    task = make_contrast(model, name, n=5)
    pairs = pairs_of(task, name)
    assert {len(ids) for ids in pairs["clean"]} == {9}  # the second answer comes a token later
    clean, _ = task.values(model)
    with torch.no_grad():
        last = model.module(torch.tensor(pairs["clean"])).logits[:, -1]
    rows = range(5)
    want = last[rows, pairs["answers"]] - last[rows, pairs["wrong"]]
    np.testing.assert_allclose(clean, want.numpy(), atol=1e-4)
    rows = list(peer_results(model, task, tmp_path))
    assert [(label, found) for label, found, _ in rows] == [
        (label, None) for _, label in SCRIPTS.values()
    ]
    assert rows[0][2] == {"note": "there is no environment circuitkit"}


def test_a_script_that_fails_after_some_methods_keeps_its_error(tmp_path) -> None:
    python = tmp_path / "gim_explain" / "bin" / "python"
    python.parent.mkdir(parents=True)
    written = '{"GIM": {"error": "no gradient"}}'
    python.write_text(f"#!/bin/sh\nprintf '{written}' > \"$6\"\necho broken >&2\nexit 1\n")
    python.chmod(0o755)
    model = interp.load("trained:induction")
    task = make_contrast(model, "trained:induction", n=2)
    label = SCRIPTS["gim_explain_nodes"][1]
    rows = [row for row in peer_results(model, task, tmp_path) if row[0].startswith(label)]
    assert rows == [
        (label, None, {"note": "broken"}),
        (f"{label} GIM", None, {"note": "no gradient"}),
    ]


def test_scores_of_a_peer_are_compared_as_those_of_a_method() -> None:
    model = interp.load("trained:induction")
    task = make_contrast(model, "trained:induction", n=6)
    truth = Truth(model, task)
    row = {
        "nodes": {"L0H1": 2.0, "L1H2": -3.0, "L0H0": 2.5},
        "forwards": 3,
        "backwards": 1,
        "edges": [["L0H1", "L1H2.k", 1.0], ["L0H0", "L1H2.q", 2.0], ["L1H2", "logits", 5.0]],
    }
    found = compared(_found(row), truth, 0, {}, "edge", {"seconds": 1.5})
    assert found["head"]["auroc"] == pytest.approx(15 / 16)  # one of eight others above one of two
    assert found["edge"]["auroc"] == pytest.approx(14 / 15)
    assert found["edge"]["seconds"] == 1.5
    assert "low" not in found["edge"]  # a peer gives one number for all pairs


def test_precision_and_recall_of_roles_are_counted_over_heads() -> None:
    row = {
        "model": "planted:x",
        "left_out": [need.metric for need in role_named("bracket").needs],
        "heads": {
            "L0H0": ["induction", ["induction"]],
            "L0H1": ["", ["induction"]],
            "L0H2": ["induction", []],
            "L0H3": ["name_mover", ["copying"]],
            "L0H4": ["bracket", []],
        },
    }
    table = role_table([row])
    wilson = "1/2 = 0.50 [0.09, 0.91]"
    assert f"| induction | 2 | 2 | {wilson} | {wilson} | planted:x L0H1 | planted:x L0H2 |" in table
    assert "| copying |" not in table  # a less exact name of a name mover
    assert "| bracket | 1 | 0 | - | - | none | none |" in table


@pytest.mark.slow
def test_roles_of_a_trained_model_are_found() -> None:
    heads = role_row("trained:induction")["heads"]
    right = {head for head, (truth, found) in heads.items() if truth in found}
    assert {"L0H1", "L0H3", "L1H2"} <= right
    assert heads["L0H0"] == ["", []]


CHEAP = [
    (model, task)
    for model, task in cases()
    if "+" not in model and "shuffle" not in model and task != "planted:selective_induction"
]


@pytest.mark.parametrize(
    ("source", "name"), sampled(pytest.param(*x) for x in CHEAP), ids=lambda x: x
)
def test_the_default_finds_known_circuits(source, name) -> None:
    model = interp.load(source)
    task = make_contrast(model, name, n=16, seed=SEEDS[0])
    row = measured(model, task, Truth(model, task), DEFAULT, {}, SEEDS[0])
    least = (
        {"head": 1.0, "edge": 1.0}
        if source.startswith("compiled")
        else {
            "head": 0.95,
            "edge": 0.9,
        }
    )
    for level, at_least in least.items():
        found = row[level]["auroc"]
        assert found is None or found >= at_least, (level, row)


def test_sets_are_stated_with_precision_recall_and_coverage() -> None:
    """Half of the named nodes are right, all of the circuit's are named, one interval of two."""
    row = {"of": "trained", "class": "sets", "share": [0.9, 0.8, 1.0, 0.85]}
    counts = {"set nodes": [2, 4, 2], "set edges": [1, 1, 2]}
    rows = [row | {"set": counts}, row | {"set": counts, "share": [0.9, 0.88, 1.0, 0.85]}]
    [line] = [x for x in sets_table(rows, ("trained", "planted")).splitlines() if "| 2 |" in x]
    assert line.startswith(
        "| trained | 2 | 0.50 | 1.00 | 1.00 | 0.50 | - | - | - | - | 0.85 | 0.50 ["
    )
