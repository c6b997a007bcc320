"""Discrete codes: every step by hand, what the method can find, and what it cannot."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from circuits.contrasts import induction_pairs

import interp
from interp import planted
from interp.circuits.head_evaluation import authors_f1, f1, precision_at
from interp.circuits.methods import _codes as steps
from interp.core.errors import OptionError
from interp.core.rank_statistics import auroc, auroc_interval

BUILT = planted.bystander(layers=3, heads=8, kv_heads=4, vocab=48, context=64)


def named(role):
    return tuple(f"L{layer}H{h}" for layer, h in BUILT.roles[role])


@pytest.fixture(scope="module")
def wide_pairs(wide_bystander_model):
    return induction_pairs(
        wide_bystander_model,
        40,
        previous_token=named("previous_token"),
        induction=named("induction"),
    )


FAST = {"codes": 64, "epochs": 60, "repeats": 2, "permutations": 40}


@pytest.fixture(scope="module")
def found_edges(wide_bystander_model, wide_pairs):
    from interp.circuits.methods import codes

    return codes(wide_bystander_model, wide_pairs, "edge", **FAST)


# --- the steps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["mean", "last", "next"])
def test_results_are_what_heads_write(wide_bystander_model, wide_pairs, position) -> None:
    x, names = steps.head_results(wide_bystander_model, wide_pairs, position)
    assert x.shape == (80, 24, wide_bystander_model.d_model)
    for row, prompts, i in ((3, wide_pairs.clean, 3), (47, wide_pairs.corrupted, 7)):
        ids = [list(prompts.ids[i])]
        for layer, head in ((0, 1), (2, 5)):
            whole = wide_bystander_model.capture(ids, ("result",))["result", layer][0, :, head]
            at = {
                "mean": whole.mean(0),
                "last": whole[-1],
                "next": whole[wide_pairs.roles[i]["next"]],
            }
            torch.testing.assert_close(
                x[row, names.index(f"L{layer}H{head}")], at[position], atol=1e-5, rtol=1e-4
            )


def test_a_head_scores_the_codes_that_only_clean_prompts_have() -> None:
    codes = np.array([[0, 5], [1, 5], [1, 6], [2, 5], [2, 6], [0, 6]])  # three clean, three not
    positive = np.arange(6) < 3
    assert steps.only_positive(codes, positive).tolist() == [1, 0]
    assert steps.only_positive(codes, positive, normalise=True).tolist() == [1 / 3, 0]


def test_pairs_of_codes_by_hand() -> None:
    codes = np.array([[0, 5, 1], [1, 5, 1], [0, 6, 1], [1, 6, 1]])
    pairs = steps.pairs_only_positive(codes, np.arange(4) < 2)
    # no head has a code of its own, but heads 0 and 1 have both their pairs on one side alone
    assert pairs.tolist() == [[0, 2, 0], [2, 0, 1], [0, 1, 0]]


def test_the_authors_count_of_heads_in_pairs() -> None:
    pairs = np.array([[0.0, 3, 1], [3, 0, 2], [1, 2, 0]])
    # (0,1), (1,0), then half a pair: nine ordered pairs, so four names are read
    assert steps.heads_of_pairs(pairs).tolist() == [2, 2, 0]


def test_softmax_keeps_the_order() -> None:
    x = np.array([3.0, 1.0, 5.0])
    assert steps.softmax(x).argsort().tolist() == x.argsort().tolist()
    assert steps.softmax(x).sum() == pytest.approx(1)


def test_training_lowers_the_loss_and_keeps_rows_of_length_one() -> None:
    torch.manual_seed(0)
    basis = torch.randn(6, 12)
    x = basis[torch.randint(6, (30, 4))]
    learned, losses = steps.train_autoencoder(x, codes=24, sparsity=0.02, epochs=300, seed=0)
    assert losses[-1] < 0.5 * losses[0]
    for w in (learned.encoder, learned.decoder):
        torch.testing.assert_close(w.norm(dim=-1), torch.ones(len(w)), atol=1e-5, rtol=0)
    # examples of one kind share their code, and different kinds mostly do not
    codes = learned.codes(basis[None])[0]
    assert len(set(codes.tolist())) >= 4


def test_the_tied_bias_is_taken_off_and_put_back() -> None:
    made = steps.Autoencoder.new(5, 7, torch.Generator().manual_seed(0))
    made.tied = torch.arange(5.0)
    hidden = made.hidden(made.tied[None])
    assert float(hidden.abs().max()) == 0.0
    torch.testing.assert_close(made.reconstructed(hidden)[0], made.tied)


def test_p_values_are_uniform_without_a_contrast_and_small_with_one() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, (60, 40))
    codes[:, 0] = np.r_[rng.integers(20, 40, 30), rng.integers(0, 6, 30)]  # one true head
    own, family = steps.permuted(codes, 30, draws=100, seed=0)
    assert own[0] == family[0] == pytest.approx(1 / 101)
    assert (own[1:] < 0.05).mean() < 0.15
    assert (family[1:] > 0.05).all()
    assert (family >= own - 1e-12).all()


def test_p_values_are_of_the_score_that_is_shown() -> None:
    """A head's codes stay the same when sides change, so dividing matters between heads only."""
    rng = np.random.default_rng(3)
    codes = np.stack([rng.integers(0, 2 + 4 * h, 40) for h in range(6)], 1)
    plain = steps.permuted(codes, 20, draws=60, seed=0)
    divided = steps.permuted(codes, 20, draws=60, seed=0, normalise=True)
    assert (plain[0] == divided[0]).all()
    assert (plain[1] != divided[1]).any()
    from interp.circuits.methods.codes import _joined

    assert _joined(np.array([0.01])) == 0.01
    assert _joined(np.array([0.01, 0.02, 0.9])) == 0.04
    assert _joined(np.array([0.7, 0.8, 0.9])) == 1.0


def test_examples_are_drawn_from_both_sides_unless_asked() -> None:
    from interp.circuits.methods.codes import _drawn

    for seed in range(5):
        rows = _drawn(20, 10, True, seed)
        assert (rows < 20).sum() == 5
        assert len(set(rows.tolist())) == 10
    sides = [(_drawn(20, 4, False, seed) < 20).sum() for seed in range(40)]
    assert {0, 4} & set(sides)  # the authors' draw may leave out one side


# --- what it finds ------------------------------------------------------------------------------


def test_it_flags_the_bystander_as_much_as_the_circuit(found_edges) -> None:
    """What the docstring says that it cannot do: the bystander does nothing and scores high."""
    score = dict(zip(found_edges.nodes, found_edges.per_prompt.mean(1), strict=True))
    (bystander,) = named("bystander")
    (induction,) = named("induction")
    assert score[bystander] >= 0.8 * score[induction] > 0


def test_its_tables_say_so(found_edges) -> None:
    heads = {row["head"]: row for row in found_edges.tables["heads"]}
    assert len(heads) == 24
    assert heads[named("induction")[0]]["p"] < 0.1
    evaluation = {row["ranking"]: row for row in found_edges.tables["evaluation"]}
    assert set(evaluation) == {"codes", "pairs of codes", "untrained"}
    for row in evaluation.values():
        assert row["low"] <= row["auroc"] <= row["high"]
        assert row["in_circuit"] == 2
    assert -1 <= found_edges.tables["controls"][0]["value"] <= 1
    assert evaluation["untrained"]["auroc"] > 0.6  # a random hash is no bad ranking either


def test_where_nothing_differs_no_head_has_a_code_of_its_own(
    wide_bystander_model, wide_pairs
) -> None:
    """Both sides drawn from the same prompts: p values then say nothing was found."""
    x, _ = steps.head_results(wide_bystander_model, wide_pairs, "last")
    same = torch.cat([x[:20], x[20:40]])  # clean prompts on both sides
    learned, _ = steps.train_autoencoder(same[:10], codes=64, sparsity=0.02, epochs=60, seed=0)
    _, family = steps.permuted(learned.codes(same), 20, draws=60, seed=0)
    assert (family > 0.05).all()


def test_edges_are_pairs_of_heads(found_edges) -> None:
    assert len(found_edges.edges) == 24 * 23 // 2
    assert found_edges.edges_per_prompt.shape == (276, 2)
    assert ("L0H0", "L0H1") in found_edges.edges


def test_the_same_seed_gives_the_same_scores(wide_bystander_model, wide_pairs) -> None:
    from interp.circuits.methods import codes

    a, b = (codes(wide_bystander_model, wide_pairs, **FAST, seed=3) for _ in range(2))
    assert (a.per_prompt == b.per_prompt).all()
    assert a.edges == ()


def test_options_are_checked(wide_bystander_model, wide_pairs) -> None:
    from interp.circuits.methods import codes

    with pytest.raises(OptionError, match="mean, last or a role that every prompt has"):
        codes(wide_bystander_model, wide_pairs, position="S2")
    with pytest.raises(OptionError, match="examples=1; between 2 and the 80"):
        codes(wide_bystander_model, wide_pairs, examples=1)
    with pytest.raises(OptionError, match="at least 1, 1 and 2"):
        codes(wide_bystander_model, wide_pairs, repeats=0)
    few = induction_pairs(wide_bystander_model, 3)
    with pytest.raises(OptionError, match="3 pairs"):
        codes(wide_bystander_model, few)


# --- evaluation ---------------------------------------------------------------------------------


def test_figures_of_a_ranking_by_hand() -> None:
    score = np.array([4.0, 3.0, 3.0, 1.0])
    truth = np.array([True, True, False, False])
    assert precision_at(score, truth, 1) == 1.0
    assert precision_at(score, truth, 2) == 0.75  # two heads share the second place
    assert f1(score, truth) == pytest.approx(0.8)  # the first three
    assert authors_f1(score, truth) == pytest.approx(2 * 1 * 0.5 / 1.5)
    low, high = auroc_interval(score, truth)
    assert low <= auroc(score, truth) == 0.875 <= high


def test_it_runs_on_a_trained_model() -> None:
    from interp.circuits.methods import codes

    model = interp.load("bundled:induction")
    task = induction_pairs(model, 12)
    assert codes(model, task, **FAST).nodes[0] == "L0H0"
