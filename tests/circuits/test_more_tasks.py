"""Docstrings, planted tasks, templates that are held out, and the list of all of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from circuits.test_tasks import words

import interp
from interp import planted
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit
from interp.circuits.methods._exact import path_effects
from interp.circuits.nodes import node_of
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.tasks import TASKS, make_contrast
from interp.circuits.tasks import docstring_pairs as docs
from interp.circuits.tasks.named import split_templates
from interp.circuits.tasks.planted_pairs import CIRCUITS, circuit_edges, contrast, planted_model_of
from interp.core.errors import OptionError, PromptError
from interp.model.locate.probe import probe

PLANTED = [name for name in TASKS if name.startswith("planted:")]


# --- docstrings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("template", range(3))
def test_what_a_docstring_describes_next(worded_gpt2, template) -> None:
    task = make_contrast(worded_gpt2, "docstring", n=12, templates=[template])
    for i, (clean, other, role) in enumerate(
        zip(task.clean.ids, task.corrupted.ids, task.roles, strict=True)
    ):
        told, changed = words(worded_gpt2, clean), words(worded_gpt2, other)
        a, b, c = (told[role[r]] for r in ("A_def", "B_def", "C_def"))
        assert len({a, b, c} & set(docs.NAMES)) == 3
        assert (told[role["A_doc"]], told[role["B_doc"]]) == (a, b)
        assert role["A_def"] < role["B_def"] < role["C_def"] < role["A_doc"] < role["B_doc"]
        # the signature alone is another, and holds none of the names that the docstring has
        differs = [j for j, (x, y) in enumerate(zip(told, changed, strict=True)) if x != y]
        assert differs[:3] == [role["A_def"], role["B_def"], role["C_def"]]
        assert len(differs) == 4
        d = told[differs[3]]
        assert not {changed[j] for j in differs} & {a, b, c, d}
        assert c not in told[role["A_doc"] :]
        logits = np.zeros(worded_gpt2.d_vocab, dtype=np.float32)
        for name, size in ((c, 5.0), (a, 3.0), (b, 0.0), (d, 0.0)):
            logits[worded_gpt2.tokenizer(f" {name}")["input_ids"][-1]] = size
        columns = torch.tensor(logits)[None, list(task.task.vocabulary)]
        assert float(task.task.values(columns, [i])) == 4.0


def test_a_tokenizer_that_splits_names_of_arguments_is_refused() -> None:
    small = interp.load("bundled:induction")
    with pytest.raises(PromptError, match=r"splits .* 28 of 28 names of arguments, such as size"):
        make_contrast(small, "docstring")


# --- templates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in TASKS if TASKS[n].templates and ":" not in n])
def test_templates_are_held_out(worded_gpt2, name) -> None:
    mine, held = split_templates(name)
    assert set(mine) | set(held) == set(range(len(TASKS[name].templates)))
    assert not set(mine) & set(held)
    assert 1 <= len(held) <= len(mine)
    for chosen in (mine, held):
        task = make_contrast(worded_gpt2, name, n=16, templates=chosen)
        assert {int(t.split()[-1]) for t in task.templates} == set(chosen)
        assert task.about()["template_names"] == sorted(set(task.templates))
    assert {split_templates(name, seed)[1] for seed in range(9)} != {held}


def test_templates_that_there_are_not(worded_gpt2) -> None:
    for name, chosen in (("ioi", [5]), ("ioi", []), ("ioi", [-1]), ("induction", [0])):
        with pytest.raises(OptionError, match=f"of {name}; it has"):
            make_contrast(worded_gpt2, name, templates=chosen)
    assert split_templates("induction") == ((), ())


def test_pairs_of_ones_own_are_split_by_template(worded_gpt2) -> None:
    task = make_contrast(worded_gpt2, "ioi", n=40)
    mine, held = task.split()
    assert not set(mine.templates) & set(held.templates)
    assert len(mine) + len(held) == 40
    assert len(mine.task.positions) == len(mine) > len(held) > 3
    assert set(held.clean.ids) <= set(task.clean.ids)
    with pytest.raises(OptionError, match="has no template"):
        make_contrast(worded_gpt2, "induction", n=4).split()


# --- planted ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_model_does_its_task_by_its_circuit(name) -> None:
    """Without all the others everything of the behaviour is left."""
    model = interp.load(name)
    task = make_contrast(model, name, n=12)
    mean, sem = task.gap(model)
    assert mean > 10 * sem or mean > 2
    assert all(set(role) == set(TASKS[name].roles) for role in task.roles)
    truth = {h for heads in task.truth.values() for h in heads}
    circuit = find_circuit(model, task, "attribution_patching")
    ranked = [h for h in circuit.head_names if h in truth] + [
        h for h in circuit.head_names if h not in truth
    ]
    score = np.array([-float(ranked.index(n)) if n in ranked else 0.0 for n in circuit.nodes])
    score = np.where([n in circuit.head_names for n in circuit.nodes], score + len(ranked), 0.0)
    made = replace(circuit, score=score)
    found = evaluate_circuit(model, made, make_contrast(model, name, n=12, seed=1), n_random=2)
    assert found.against_truth()["auroc"] == 1.0
    at = [i for i, size in enumerate(found.sizes) if size >= len(truth)]
    np.testing.assert_allclose(found.faithfulness[at], 1, atol=0.03)


def test_a_planted_task_is_for_its_model_alone() -> None:
    other, seed = interp.load("planted:backup"), planted.bystander(seed=1).model
    for model in (other, probe(seed, "another seed"), interp.load("bundled:induction")):
        with pytest.raises(OptionError, match="is for the model planted:bystander"):
            make_contrast(model, "planted:bystander")
        assert planted_model_of(model) is None or model is other
    # of any size with what was built
    built = planted.bystander(layers=3, heads=8, kv_heads=4, vocab=48, context=64)
    task = contrast(probe(built.model, "large"), built, n=4)
    assert task.truth["induction"] == tuple(f"L{a}H{b}" for a, b in built.roles["induction"])


def test_induction_knows_the_circuit_of_a_planted_model() -> None:
    model = interp.load("planted:bystander")
    assert make_contrast(model, "induction", n=4).truth == {
        "previous_token": ("L0H3",),
        "induction": ("L1H0",),
    }
    assert make_contrast(interp.load("bundled:induction"), "induction", n=4).truth == {}
    assert make_contrast(interp.load("planted:positional"), "induction", n=4).truth == {}


@pytest.mark.parametrize("name", ["bystander", "backup", "zoo"])
def test_the_edges_between_planted_heads_are_those_that_matter(name) -> None:
    """By patched forwards of single paths, where no other head stands in."""
    model, built = interp.load(f"planted:{name}"), planted.build(name)
    task = make_contrast(model, f"planted:{name}", n=2)
    graph = ResidualGraph.of(model)
    (batch,) = task.batches()
    mine = {h for heads in task.truth.values() for h in heads}
    paths = [e for e in graph.edges if e[0][0] == "L" and node_of(e[1]) in mine]
    found = path_effects(EdgeForward(graph, batch.clean, batch.corrupted), batch.value, paths)
    large = {e for e, x in zip(paths, found.mean(1).abs().tolist(), strict=True) if x > 1}
    known = set(circuit_edges(built))
    assert large <= known
    assert all(node_of(b) in graph.writers for _, b in known)
    if name == "bystander":
        assert large == known


def test_every_planted_circuit_model_has_a_task() -> None:
    # what the first three write is not read; the last answers the families of retrieval tasks
    without = {"duplicate_token", "positional", "noise", "retriever"}
    assert set(CIRCUITS) == set(planted.PLANTED) - without
    assert {n.partition(":")[2] for n in PLANTED} == set(CIRCUITS)


# --- the list -----------------------------------------------------------------------------------


def test_the_list_imports_no_torch(run) -> None:
    told = run("circuit", "--list").stdout
    for name, about in TASKS.items():
        assert f"\n  {name}: {about.summary}\n" in told
        assert f"roles {', '.join(about.roles) or 'none'}; {about.metric}" in told
    assert "template 1: {A} and {B} were at the {P}." in told
    assert "screen_verify (head): Choose candidates by gradients" in told
    assert "attribution_patching (head and edge): Estimate the effect" in told
    assert "ioi_gpt2_small: ioi in gpt2, 26 heads" in told
    code = (
        "import sys, interp.report.printed.listing as listing; listing.circuit_listing();"
        "sys.exit(' '.join({'torch', 'transformers', 'pandas', 'plotly'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
