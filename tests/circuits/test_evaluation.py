"""Figures of a circuit on models whose circuit is known, by hand, and against chance."""

from __future__ import annotations

import numpy as np
import pytest
from circuits.contrasts import induction_pairs

import interp
from interp.circuits.declaration import Found, discovery
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit
from interp.core.errors import OptionError

TRUTH = {"previous_token": ("L0H3",), "induction": ("L1H0",)}


@pytest.fixture(scope="module")
def task_with_truth(planted_bystander):
    return induction_pairs(planted_bystander, 16, **TRUTH)


def by(*heads):
    """A method that ranks these heads first, in this order."""

    @discovery(levels=("head",))
    def test_ranking(model, task, level) -> Found:
        """Made up."""
        names = tuple(map(str, model.heads()))
        score = [float(len(heads) - heads.index(h)) if h in heads else 0.0 for h in names]
        return Found(names, np.array(score)[:, None].repeat(len(task), 1), "places")

    return test_ranking


def run(model, task, *heads, **options):
    return evaluate_circuit(model, find_circuit(model, task, by(*heads)), task, **options)


def test_the_true_circuit_is_faithful_from_two_heads_on(planted_bystander, task_with_truth) -> None:
    found = run(planted_bystander, task_with_truth, "L0H3", "L1H0")
    assert found.sizes == (1, 2, 4, 8)
    np.testing.assert_allclose(found.faithfulness, [0, 1, 1, 1], atol=0.01)
    assert found.against_truth()["auroc"] == 1.0
    low, high = found.share_interval(found.inside - found.empty)
    assert low <= found.chosen_faithfulness <= high
    assert found.chosen_faithfulness == pytest.approx(1, abs=0.01)


def test_a_wrong_circuit_is_not(planted_bystander, task_with_truth) -> None:
    found = run(planted_bystander, task_with_truth, "L1H2", "L0H0", "L0H1", "L1H1")
    np.testing.assert_allclose(found.faithfulness, [0, 0, 0, 1], atol=0.01)
    assert found.chosen_faithfulness == pytest.approx(0, abs=0.01)
    assert found.against_truth()["auroc"] < 0.5


def test_random_orders_are_what_chance_gives(planted_bystander, task_with_truth) -> None:
    """Both heads are among the first k of 8 with probability k (k - 1) / 56."""
    found = run(planted_bystander, task_with_truth, "L0H3", "L1H0", n_random=300)
    gap = found.full.mean() - found.empty.mean()
    share = (found.random - found.empty.mean()).mean(0) / gap
    np.testing.assert_allclose(share, [0, 2 / 56, 12 / 56, 1], atol=0.07)


def test_random_circuits_have_as_many_heads_in_each_layer(
    planted_bystander, task_with_truth
) -> None:
    """One of four in either layer: both are the true ones in 1 of 16 draws."""
    found = run(planted_bystander, task_with_truth, "L0H3", "L1H0", n_random=120)
    assert found.chosen_faithfulness == pytest.approx(found.faithfulness[1], abs=1e-6)
    share = found.shaped_faithfulness
    assert len(share) == 120
    assert ((share > 0.99) | (np.abs(share) < 0.02)).all()
    assert 1 / 40 < (share > 0.99).mean() < 1 / 8
    # two heads of layer 1: never the true ones
    late = run(
        planted_bystander, task_with_truth, "L1H1", "L1H0", n_random=40, k=2
    ).shaped_faithfulness
    assert np.abs(late).max() < 0.02
    row = next(r for r in found.figures() if r["figure"] == "faithfulness")
    assert row["value"] == found.chosen_faithfulness
    assert row["random"] == share.mean()
    assert "as many heads in each layer" in row["what"]


def test_the_ablation_is_named_and_moves_the_figures(planted_bystander, task_with_truth) -> None:
    zero = run(planted_bystander, task_with_truth, "L0H3", "L1H0", ablation="zero")
    assert zero.ablation == "zero"
    assert set(zero.to_pandas()["ablation"]) == {"zero"}
    assert zero.made["ablation"] == "zero"
    assert "zero" in repr(zero)
    swapped = run(planted_bystander, task_with_truth, "L0H3", "L1H0")
    assert swapped.ablation == "corrupted"
    assert zero.empty.mean() != swapped.empty.mean()


def test_values_are_those_of_edited_runs(planted_bystander, task_with_truth) -> None:
    import torch

    found = run(planted_bystander, task_with_truth, "L0H3", "L1H0", ablation="zero")
    out = [(h.layer, h.head) for h in planted_bystander.heads() if str(h) not in ("L0H3", "L1H0")]
    for batch in task_with_truth.batches():
        with torch.no_grad(), planted_bystander.edited(interp.zero(out)):
            value = batch.value(planted_bystander.run(batch.clean)).double().numpy()
        np.testing.assert_allclose(found.per_prompt[1, list(batch.which)], value, atol=1e-4)


def test_held_out_pairs(planted_bystander, task_with_truth) -> None:
    circuit = find_circuit(planted_bystander, task_with_truth, by("L0H3", "L1H0"))
    fresh = evaluate_circuit(
        planted_bystander, circuit, induction_pairs(planted_bystander, 16, seed=9, **TRUTH)
    )
    assert fresh.faithfulness[1] == pytest.approx(1, abs=0.01)


def test_what_cannot_be_evaluated(planted_bystander, task_with_truth) -> None:
    other = interp.load("planted:backup")
    smaller = find_circuit(other, induction_pairs(other, 6), by("L2H0"))
    with pytest.raises(OptionError, match="planted:bystander has 2 of 4"):
        evaluate_circuit(planted_bystander, smaller, task_with_truth)
    with pytest.raises(OptionError, match="no circuit is known"):
        run(planted_bystander, induction_pairs(planted_bystander, 6), "L0H3").against_truth()


def test_it_shows_itself(planted_bystander, task_with_truth, tmp_path) -> None:
    found = run(planted_bystander, task_with_truth, "L0H3", "L1H0")
    assert len(found.plot().data) == 3  # the band, the circuit, random orders
    assert "the first 2 heads keep 1.00" in found._repr_html_()
    found.save_html(tmp_path / "e.html")


def test_all_heads_are_run_once_and_not_in_every_order(planted_bystander, task_with_truth) -> None:
    found = run(planted_bystander, task_with_truth, "L0H3", "L1H0", n_random=6)
    # all, none, 3 more sizes; and at most 3 sizes in each of 6 orders and 6 of the same shape
    assert 5 <= found.made["forwards"] <= 5 + 6 * 3 + 6
    np.testing.assert_allclose(found.random[:, -1], found.full.mean())


def test_active_heads_are_as_in_a_game(planted_bystander, task_with_truth) -> None:
    """The runs of both sides and a game, which other options ask for, agree on every set."""
    mine, game = (
        run(planted_bystander, task_with_truth, "L0H3", "L1H2", n_random=6, **options)
        for options in ({}, {"reuse": False})
    )
    for name in ("per_prompt", "full", "empty", "random", "inside", "shaped"):
        np.testing.assert_allclose(getattr(mine, name), getattr(game, name), atol=1e-4)
    assert mine.made["forwards"] == game.made["forwards"]


def test_runs_of_the_same_pairs_are_made_once(planted_bystander, task_with_truth, monkeypatch):
    from interp.circuits import patched_runs

    built, own = [], patched_runs.EdgeForward

    def counted(*args, **options):
        built.append(args)
        return own(*args, **options)

    monkeypatch.setattr(patched_runs, "EdgeForward", counted)
    apart = [patched_runs.PatchedRuns(planted_bystander, task_with_truth) for _ in range(2)]
    each, built[:] = len(built) // 2, []
    with patched_runs.shared_runs():
        shared = [patched_runs.PatchedRuns(planted_bystander, task_with_truth) for _ in range(2)]
        assert len(built) == each
        patched_runs.PatchedRuns(planted_bystander, task_with_truth.some(range(8)))
        assert len(built) > each
    masks = [shared[0].node_mask("L0H3")]
    for runs in (*shared, apart[1]):
        np.testing.assert_array_equal(runs.effects(masks, "x"), apart[0].effects(masks, "x"))
