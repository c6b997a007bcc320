"""Every way to find a circuit on models whose circuit is known, and against one another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp import planted
from interp.causal.game.game import Game
from interp.circuits.edge_evaluation import evaluate_edges
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit, score_nodes
from interp.circuits.head_evaluation import marked
from interp.circuits.methods import (
    attribution_patching,
    exact_patching,
    gim_patching,
    integrated_patching,
    screen_verify,
)
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError, UnknownName
from interp.core.rank_statistics import auroc

TRUE = (exact_patching, integrated_patching, screen_verify)


@pytest.fixture(scope="module")
def wide_contrast(wide_bystander_model):
    return make_contrast(wide_bystander_model, "induction", n=12)


def names(built, *roles):
    return {f"L{layer}H{h}" for role in roles for layer, h in built.roles[role]}


def mean(found, name):
    return float(found.per_prompt[found.nodes.index(name)].mean())


@pytest.mark.slow
@pytest.mark.parametrize("method", TRUE, ids=lambda m: m.name)
def test_the_planted_circuit_comes_first(
    wide_bystander, wide_bystander_model, wide_contrast, method
) -> None:
    circuit = find_circuit(wide_bystander_model, wide_contrast, method)
    truth = names(wide_bystander, "previous_token", "induction")
    heads = circuit.head_names
    size = np.array([abs(circuit.score[circuit.nodes.index(h)]) for h in heads])
    assert auroc(size, marked(heads, truth)) == 1.0
    assert set(circuit.top(2, heads_only=True).head_names) == truth
    (bystander,) = names(wide_bystander, "bystander")
    assert bystander not in circuit.top(6, heads_only=True).head_names
    assert abs(circuit.score[circuit.nodes.index(bystander)]) < 0.01 * size.max()


def test_one_gradient_misses_what_the_softmax_hides(
    wide_bystander, wide_bystander_model, wide_contrast
) -> None:
    """The planted attention is saturated: the previous-token head has no gradient at all."""
    found = attribution_patching(wide_bystander_model, wide_contrast)
    (previous,) = names(wide_bystander, "previous_token")
    (induction,) = names(wide_bystander, "induction")
    assert abs(mean(found, previous)) < 0.01 * mean(found, induction)
    assert mean(gim_patching(wide_bystander_model, wide_contrast), previous) > 3 * abs(
        mean(found, previous)
    )


def test_where_nothing_is_to_be_found_no_head_stands_out() -> None:
    noise = interp.load("planted:noise")
    clean = make_contrast(noise, "induction", n=12)
    found = exact_patching(noise, clean)
    heads = [n for n in found.nodes if n.startswith("L")]
    assert max(abs(mean(found, h)) for h in heads) < 0.1
    with pytest.raises(OptionError, match="does not do induction"):
        find_circuit(noise, clean)


def test_patching_heads_equals_the_game(wide_bystander_model, wide_contrast) -> None:
    """Another implementation: heads replaced by what they write on the corrupted side."""
    found = exact_patching(wide_bystander_model, wide_contrast)
    game = Game(wide_bystander_model, wide_contrast.task, kind="resample")
    gates = torch.cat([torch.ones(1, len(game)), 1 - torch.eye(len(game))]).double()
    values = game.values(gates).numpy()
    for at, label in enumerate(game.players.labels):
        want = values[0] - values[1 + at]
        np.testing.assert_allclose(found.per_prompt[found.nodes.index(label)], want, atol=2e-4)


@pytest.mark.slow
def test_edges_into_readers_add_up_to_nodes(wide_bystander_model, wide_contrast) -> None:
    for method in (attribution_patching, integrated_patching, gim_patching):
        nodes, edges = (
            method(wide_bystander_model, wide_contrast),
            method(wide_bystander_model, wide_contrast, "edge"),
        )
        assert edges.nodes == nodes.nodes
        if method is not gim_patching:  # its rules act on edges and nodes at other places
            np.testing.assert_allclose(edges.per_prompt, nodes.per_prompt, atol=1e-3, rtol=1e-3)
        total = {n: np.zeros(len(wide_contrast)) for n in edges.nodes}
        for (writer, _), score in zip(edges.edges, edges.edges_per_prompt, strict=True):
            total[writer] += score
        for name, score in zip(edges.nodes, edges.per_prompt, strict=True):
            np.testing.assert_allclose(total[name], score, atol=1e-6)


def test_paths_lead_from_the_one_head_to_the_keys_of_the_other(wide_bystander) -> None:
    small = interp.load("planted:induction")
    task = make_contrast(small, "induction", n=4)
    found = exact_patching(small, task, "edge")
    mean_edge = found.edges_per_prompt.mean(1)
    between = {
        e: s
        for e, s in zip(found.edges, mean_edge, strict=True)
        if e[0][0] == "L" and e[1][0] == "L"
    }
    best = max(between, key=lambda e: abs(between[e]))
    assert best == ("L0H3", "L1H0.k")
    others = [abs(s) for e, s in between.items() if e != best]
    assert between[best] > 5
    assert max(others) < 0.05 * between[best]


def test_the_trained_model_has_the_same_path() -> None:
    model = interp.load("bundled:induction")
    task = make_contrast(model, "induction", n=4)
    found = exact_patching(model, task, "edge")
    scores = dict(zip(found.edges, found.edges_per_prompt.mean(1), strict=True))
    into_keys = {e: s for e, s in scores.items() if e[0][0] == "L" and e[1].endswith(".k")}
    assert max(into_keys, key=lambda e: into_keys[e])[0] == "L0H3"  # its previous-token head
    fed = {e[1][:4] for e, s in into_keys.items() if e[0] == "L0H3" and s > 0}
    assert len(fed) >= 6  # all heads of layer 1 do induction


def test_a_backup_is_found_by_the_second_look_only() -> None:
    model = interp.load("planted:backup")
    roles = planted.build("backup").roles
    (backup,), (induction,) = ([f"L{a}H{b}" for a, b in roles[r]] for r in ("backup", "induction"))
    task = make_contrast(model, "induction", n=8)
    alone = exact_patching(model, task)
    assert abs(mean(alone, backup)) < 0.01
    assert abs(mean(alone, induction)) < 0.01  # the backup stands in for it
    found = screen_verify(model, task)
    assert {(r["head"], r["for"]) for r in found.tables["backups"]} == {
        (backup, induction),
        (induction, backup),
    }
    # the effect of patching it alone, as any other method has it, and the other beside it
    for head, other in ((backup, induction), (induction, backup)):
        at = found.nodes.index(head)
        assert abs(mean(found, head)) < 0.01
        assert found.conditional[at].mean() > 5
        assert found.conditional_on[at] == other
        assert found.measured[at] == f"patched alone, and with {other} out"
    blind = screen_verify(model, task, backups=False)
    assert abs(mean(blind, backup)) < 0.01
    without = interp.load("planted:induction")
    none = screen_verify(without, make_contrast(without, "induction", n=8))
    assert none.tables["backups"] == []


def test_passes_are_counted(wide_bystander_model, wide_contrast) -> None:
    assert attribution_patching(wide_bystander_model, wide_contrast).backwards == pytest.approx(1)
    more = integrated_patching(wide_bystander_model, wide_contrast, steps=7)
    assert (more.backwards, more.forwards) == (pytest.approx(7), pytest.approx(9))
    assert exact_patching(wide_bystander_model, wide_contrast).forwards > 10


def test_denoising_asks_what_suffices(wide_bystander_model, wide_contrast, wide_bystander) -> None:
    """Here either head's clean output brings the behaviour back; the bystander's does not."""
    found = exact_patching(wide_bystander_model, wide_contrast, denoise=True)
    needed = exact_patching(wide_bystander_model, wide_contrast)
    for head in names(wide_bystander, "previous_token", "induction"):
        assert mean(found, head) == pytest.approx(mean(needed, head), rel=1e-2)
    for head in names(wide_bystander, "bystander"):
        assert abs(mean(found, head)) < 0.01
    assert mean(found, "embed") == pytest.approx(mean(needed, "embed"), rel=1e-3)


@pytest.mark.slow
def test_circuits_of_every_method_can_be_evaluated(wide_bystander_model, wide_contrast) -> None:
    fresh = make_contrast(wide_bystander_model, "induction", n=8, seed=5)
    good = evaluate_circuit(
        wide_bystander_model,
        find_circuit(wide_bystander_model, wide_contrast, screen_verify),
        fresh,
        n_random=4,
    )
    assert good.chosen_faithfulness > 0.95
    assert np.median(good.shaped_faithfulness) < 0.3


def test_options_are_checked(wide_bystander_model, wide_contrast) -> None:
    with pytest.raises(OptionError, match="grad_drop scores heads"):
        attribution_patching(wide_bystander_model, wide_contrast, "edge", grad_drop=True)
    with pytest.raises(OptionError, match="at='middle'"):
        attribution_patching(wide_bystander_model, wide_contrast, at="middle")
    with pytest.raises(OptionError, match="steps=0"):
        integrated_patching(wide_bystander_model, wide_contrast, steps=0)
    with pytest.raises(OptionError, match="inputs or activations"):
        integrated_patching(wide_bystander_model, wide_contrast, path="both")
    with pytest.raises(OptionError, match="norm='no'"):
        exact_patching(wide_bystander_model, wide_contrast, norm="no")
    with pytest.raises(OptionError, match="at least 1 each"):
        screen_verify(wide_bystander_model, wide_contrast, candidates=0)
    with pytest.raises(OptionError, match="scores heads, not edges"):
        screen_verify(wide_bystander_model, wide_contrast, "edge")


@pytest.mark.slow
def test_names_of_the_command_line_work_in_python(planted_bystander) -> None:
    """`-m acdc:threshold=0.2`: the same circuit as with the option beside the name."""
    model, task = planted_bystander, make_contrast(planted_bystander, "planted:bystander", n=4)
    for name, options in (
        ("acdc:threshold=0.2", {"threshold": 0.2}),
        ("exact-patching:denoise=true", {"denoise": True}),
        (
            "verified_edges:faithful=0.9,max_evaluations=40",
            {"faithful": 0.9, "max_evaluations": 40},
        ),
    ):
        plain = name.partition(":")[0]
        found, want = find_circuit(model, task, name), find_circuit(model, task, plain, **options)
        assert found.to_dict() == want.to_dict()
        assert found.made["options"] == options
        scores = score_nodes(model, task, name).per_prompt
        np.testing.assert_array_equal(scores, score_nodes(model, task, plain, **options).per_prompt)
    with pytest.raises(OptionError, match="threshold is given in the name and beside it"):
        find_circuit(model, task, "acdc:threshold=0.2", threshold=0.1)
    with pytest.raises(UnknownName, match="option of acdc"):
        find_circuit(model, task, "acdc:treshold=0.2")


def test_dropped_gradients_have_no_sign(wide_bystander_model, wide_contrast) -> None:
    found = attribution_patching(wide_bystander_model, wide_contrast, grad_drop=True)
    assert (found.per_prompt >= 0).all()
    assert not found.signed


@pytest.mark.slow
def test_a_circuit_of_edges_is_faithful_with_few_edges() -> None:
    small = interp.load("planted:induction")
    task, fresh = (make_contrast(small, "induction", n=6, seed=s) for s in (0, 1))
    circuit = find_circuit(small, task, exact_patching, "edge")
    found = evaluate_edges(small, circuit, fresh, n_random=4)
    assert found.edges == len(circuit.edges)
    # all edges are the clean run, none the corrupted one
    clean, corrupted = fresh.values(small)
    np.testing.assert_allclose(found.full, clean, atol=1e-3)
    np.testing.assert_allclose(found.empty, corrupted, atol=1e-3)
    assert found.faithfulness[-1] == pytest.approx(1, abs=1e-3)
    tenth = next(i for i, n in enumerate(found.sizes) if n >= 0.15 * found.edges)
    assert found.faithfulness[tenth] > 0.95
    assert np.median(found.random[:, tenth]) < found.empty.mean() + 0.1
    size, beside = found.sizes[tenth], found.wide()["random"][tenth]
    assert f"{size}: {found.faithfulness[tenth]:.2f} ({beside:.2f})" in found.summary()
    assert found.wide()["edges"].tolist() == list(found.sizes)
    # the one edge between heads that was built in, of 4 heads into 3 inputs of 4 heads
    assert found.truth == (("L0H3", "L1H0.k"),)
    known = found.against_truth()
    assert (known["auroc"], known["of"]) == (1.0, 48.0)
    said = "built in L0H3>L1H0.k: AUROC 1.000 [1.000, 1.000] of 48 edges between heads"
    assert said in repr(found)
    wrong = evaluate_edges(small, circuit, fresh, n_random=1, truth=[("L0H0", "L1H2.q")])
    assert wrong.against_truth()["auroc"] < 0.9
    with pytest.raises(OptionError, match=r"has no edge L1H0 -> L0H3\.k, said to be known"):
        evaluate_edges(small, circuit, fresh, truth=[("L1H0", "L0H3.k")])
    with pytest.raises(OptionError, match="no edges are known for induction"):
        evaluate_edges(small, circuit, fresh, n_random=1, truth=()).against_truth()
    with pytest.raises(OptionError, match="has no edges; find it at the level edge"):
        evaluate_edges(small, find_circuit(small, task, exact_patching), fresh)


def test_pairs_of_codes_are_no_edges_of_the_graph(wide_bystander_model, wide_contrast) -> None:
    from interp.circuits.methods import codes

    pairs = find_circuit(
        wide_bystander_model,
        wide_contrast,
        codes,
        "edge",
        codes=16,
        epochs=5,
        repeats=1,
        permutations=2,
    )
    with pytest.raises(OptionError, match="pairs of heads, as codes gives them"):
        evaluate_edges(wide_bystander_model, pairs, wide_contrast)
