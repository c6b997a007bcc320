"""Discrete codes: edges as edges, softmax within layers, and why no gradient is projected."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from circuits.contrasts import induction_pairs

from interp import planted
from interp.circuits.methods import _codes as steps
from interp.circuits.methods.codes import _edges_evaluated
from interp.circuits.tasks.planted_pairs import circuit_edges, truth_of
from interp.core.errors import OptionError
from interp.core.rank_statistics import auroc
from interp.model.locate.probe import probe

FAST = {"codes": 64, "epochs": 40, "repeats": 2, "permutations": 20}


@pytest.fixture(scope="module")
def planted_case():
    built = planted.bystander(layers=3, heads=8, kv_heads=4, vocab=48, context=64)
    model = probe(built.model, "bystander, 24 heads")
    task = induction_pairs(model, 30).known(truth_of(built), circuit_edges(built))
    return model, task, built


# --- training -----------------------------------------------------------------------------------


def test_no_gradient_points_along_a_row() -> None:
    """The authors take that part out; here it is nothing, because rows are normalised inside."""
    generator = torch.Generator().manual_seed(0)
    made = steps.Autoencoder.new(12, 20, generator)
    x = torch.randn(50, 12, generator=generator)
    for w in (made.encoder, made.decoder):
        w.requires_grad_(True)
    made.loss(x, 0.02).backward()
    for w in (made.encoder, made.decoder):
        along = (w.grad * w.detach()).sum(-1)
        assert float(w.grad.norm(dim=-1).max()) > 1e-3
        assert float(along.abs().max()) < 1e-7


def test_training_equals_training_with_the_projection(monkeypatch) -> None:
    """The authors' update in full: rows as parameters, normalised before, their gradient projected.

    Double precision, so that rounding does not tell the two apart.
    """
    x = torch.randn(30, 4, 10, generator=torch.Generator().manual_seed(1)).double()
    made = steps.Autoencoder.new(10, 16, torch.Generator().manual_seed(0))
    theirs = [
        w.double().requires_grad_() for w in (made.encoder, made.bias, made.decoder, made.tied)
    ]
    encoder, bias, decoder, tied = theirs
    best = torch.optim.Adam(theirs, lr=steps.RATE)
    rows, losses = x.flatten(0, 1), []
    for _ in range(40):
        with torch.no_grad():
            for w in (encoder, decoder):
                w.div_(w.norm(dim=-1, keepdim=True))
        hidden = ((rows - tied) @ encoder.T + bias).relu()
        error = (hidden @ decoder.T + tied - rows).square().mean()
        loss = error + 0.02 * hidden.abs().mean()
        best.zero_grad()
        loss.backward()
        with torch.no_grad():
            for w in (encoder, decoder):
                w.grad -= (w.grad * w).sum(-1, keepdim=True) * w
        best.step()
        losses.append(float(loss.detach()))
    new = steps.Autoencoder.new

    class Doubled(steps.Autoencoder):
        @classmethod
        def new(cls, d_model, codes, generator):
            single = new(d_model, codes, generator)
            return cls(*(w.double() for w in vars(single).values()))

    monkeypatch.setattr(steps, "Autoencoder", Doubled)
    learned, mine = steps.train_autoencoder(x, codes=16, sparsity=0.02, epochs=40, seed=0)
    assert mine == pytest.approx(losses, rel=1e-9)
    assert losses[-1] < 0.95 * losses[0]
    torch.testing.assert_close(
        learned.decoder,
        decoder.detach() / decoder.detach().norm(dim=-1, keepdim=True),
        atol=1e-9,
        rtol=0,
    )


# --- softmax ------------------------------------------------------------------------------------


def test_softmax_within_a_layer_by_hand() -> None:
    score, layers = np.array([3.0, 1.0, 5.0, 5.0]), np.array([0, 0, 1, 1])
    e = np.exp(2)
    found = steps.shared(score, "layer", layers)
    np.testing.assert_allclose(found, [e / (e + 1), 1 / (e + 1), 0.5, 0.5])
    # the order changes: the first of a quiet layer comes before both of a loud one
    assert found[0] > found[2]
    assert (steps.shared(score, "none", layers) == score).all()
    assert steps.shared(score, "heads", layers).sum() == pytest.approx(1)
    assert steps.shared(score, "heads", layers).argsort().tolist() == score.argsort().tolist()


def test_the_option_reaches_scores_p_values_and_controls(planted_case) -> None:
    from interp.circuits.methods import codes

    model, task, _ = planted_case
    plain, layer, heads = (codes(model, task, **FAST, over=o) for o in ("none", "layer", "heads"))
    assert (plain.unit, layer.unit) == ("codes", "probability")
    np.testing.assert_allclose(layer.per_prompt.reshape(3, 8, 2).sum(1), 1)
    np.testing.assert_allclose(heads.per_prompt.sum(0), 1)
    for i in range(2):
        want = steps.shared(plain.per_prompt[:, i], "layer", np.repeat(np.arange(3), 8))
        np.testing.assert_allclose(layer.per_prompt[:, i], want)
    untrained = np.array([row["untrained"] for row in layer.tables["heads"]])
    assert untrained.reshape(3, 8).sum(1) == pytest.approx([1, 1, 1])
    p = [[row["p_any_head"] for row in f.tables["heads"]] for f in (plain, layer)]
    assert p[0] != p[1]
    with pytest.raises(OptionError, match="over='row'; expected one of none, heads, layer"):
        codes(model, task, over="row")


def test_p_values_are_those_of_the_shared_score() -> None:
    rng = np.random.default_rng(0)
    codes, layers = rng.integers(0, 5, (40, 6)), np.array([0, 0, 0, 1, 1, 1])
    own, family = steps.permuted(codes, 20, draws=30, seed=4, over="layer", layers=layers)
    positive = np.arange(40) < 20
    score = steps.shared(steps.only_positive(codes, positive), "layer", layers)
    draw, want, largest = np.random.default_rng(4), np.ones(6), np.ones(6)
    for _ in range(30):
        flip = draw.random(20) < 0.5
        mixed = np.where(np.r_[flip, flip][:, None], np.r_[codes[20:], codes[:20]], codes)
        drawn = steps.shared(steps.only_positive(mixed, positive), "layer", layers)
        want += drawn >= score
        largest += drawn.max() >= score
    np.testing.assert_allclose(own, want / 31)
    np.testing.assert_allclose(family, largest / 31)


# --- edges --------------------------------------------------------------------------------------

NAMES, LAYERS = ["L0H0", "L0H1", "L1H0", "L1H1"], np.array([0, 0, 1, 1])


def pairs_of(scores) -> np.ndarray:
    out = np.zeros((4, 4))
    for (a, b), x in scores.items():
        out[a, b] = out[b, a] = x
    return out


def test_edges_by_hand() -> None:
    """Pairs that can be edges: 02 03 12 13. The pair 01 of one layer does not count."""
    pairs = pairs_of({(0, 1): 9, (0, 2): 4, (0, 3): 3, (1, 2): 1, (1, 3): 0})
    known = {frozenset(("L0H0", "L1H1"))}
    found = _edges_evaluated({"x": pairs}, NAMES, LAYERS, known, ["L0H0", "L1H1"])
    (row,) = found["edge_evaluation"]
    assert row["auroc"] == pytest.approx(2 / 3)  # above two of three
    assert (row["edges"], row["in_circuit"]) == (4, 1)
    assert [(r["k"], r["precision"], r["recall"], r["chance"]) for r in found["edges_at_k"]] == [
        (1, 0, 0, 0.25),
        (2, 0.5, 1, 0.25),
    ]
    # the authors' recipe on the same pairs: 01, 10, 02, 20 are read, so 0 four times, 1 and 2 twice
    assert steps.heads_of_pairs(pairs).tolist() == [4, 2, 2, 0]
    assert row["authors_heads_auroc"] == pytest.approx(0.5)
    assert _edges_evaluated({"x": pairs}, NAMES, LAYERS, set(), ["L0H0"]) == {}


def test_random_pairs_are_at_chance() -> None:
    rng = np.random.default_rng(0)
    names = [f"L{a}H{b}" for a in range(3) for b in range(6)]
    layers = np.repeat(np.arange(3), 6)
    known = {frozenset(("L0H1", "L1H2")), frozenset(("L1H2", "L2H3")), frozenset(("L0H1", "L2H3"))}
    found = [
        _edges_evaluated({"x": rng.random((18, 18))}, names, layers, known, ["L0H1"])
        for _ in range(30)
    ]
    assert np.mean([f["edge_evaluation"][0]["auroc"] for f in found]) == pytest.approx(
        0.5, abs=0.06
    )
    deep = [f["edges_at_k"][-1] for f in found]
    assert np.mean([r["precision"] for r in deep]) == pytest.approx(deep[0]["chance"], abs=0.015)


def test_edges_of_a_planted_circuit(planted_case) -> None:
    from interp.circuits.methods import codes

    model, task, built = planted_case
    found = codes(model, task, "edge", **FAST)
    rows = {row["ranking"]: row for row in found.tables["edge_evaluation"]}
    assert set(rows) == {"pairs of codes", "untrained"}
    for row in rows.values():
        assert (row["edges"], row["in_circuit"]) == (3 * 64, 1)
        assert 0 <= row["low"] <= row["auroc"] <= row["high"] <= 1
    # the table is of the edges that are returned
    score = dict(zip(found.edges, found.edges_per_prompt.mean(1), strict=True))
    true = {(a, b.partition(".")[0]) for a, b in circuit_edges(built)}
    can = [e for e in score if e[0][:2] != e[1][:2]]
    want = auroc(np.array([score[e] for e in can]), np.array([e in true for e in can]))
    assert rows["pairs of codes"]["auroc"] == pytest.approx(want)
    nothing = codes(model, induction_pairs(model, 30), **FAST)
    assert not {"evaluation", "edge_evaluation"} & set(nothing.tables)


def test_one_head_has_no_pairs() -> None:
    from interp.circuits.methods import codes

    model = probe(planted.noise(layers=1, heads=1, kv_heads=1, vocab=24).model, "one head")
    task = induction_pairs(model, 6)
    assert codes(model, task, **FAST).nodes == ("L0H0",)
    with pytest.raises(OptionError, match="one head has one head, and edges are pairs"):
        codes(model, task, "edge", **FAST)
