"""Training recovers planted directions, revives dead features and refuses what diverges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dictionaries.matching import match_features
from dictionaries.superposed import fit_rows, superposed

import interp
from interp.core.errors import NonFiniteError, OptionError, PromptError, UnknownName
from interp.core.prompts import Prompts
from interp.dictionaries import score_features, train_dictionary
from interp.dictionaries.activations import ActivationStream
from interp.dictionaries.objectives import TRAINED, Trainable
from interp.planted import build

SLOW = [a if a == "topk" else pytest.param(a, marks=pytest.mark.slow) for a in TRAINED]


@pytest.mark.parametrize("architecture", SLOW)
def test_planted_directions_are_recovered_and_random_ones_do_not_match(architecture: str) -> None:
    data = superposed(seed=1)
    assert data.directions.shape == (48, 32)  # more directions than dimensions
    found = fit_rows(
        data.rows, architecture=architecture, d_sae=96, k=2, steps=700, batch_rows=256, rate=5e-3
    )
    match = match_features(found.W_dec, data.directions)
    assert match.recovered > 0.85
    assert match.null_recovered == 0
    assert len(set(match.feature.tolist())) == 48
    if architecture == "batchtopk":
        assert found.architecture == "jumprelu"
        assert len(set(found.parts["threshold"].tolist())) == 1
    assert found.W_dec.norm(dim=1).numpy() == pytest.approx(1, abs=1e-5)


def test_untrained_directions_are_not_recovered() -> None:
    data = superposed(seed=1)
    found = fit_rows(data.rows, d_sae=64, k=2, steps=1, batch_rows=256, rate=1e-9)
    assert match_features(found.W_dec, data.directions).recovered == 0


def test_a_planted_head_writes_the_features_that_are_found() -> None:
    planted = build("induction")
    model = interp.load("planted:induction")
    [(layer, head)] = planted.roles["previous_token"]
    rng = np.random.default_rng(0)
    prompts = [[0, *rng.integers(1, model.d_vocab, 30).tolist()] for _ in range(100)]
    found = train_dictionary(
        model, prompts[:80], layer=layer, d_sae=128, k=2, steps=300, batch_rows=256, rate=5e-3
    ).dictionary
    written = found.W_dec.unflatten(1, (model.n_heads, -1))[:, head]
    directions = written @ model.weights_of(model.site(layer)).W_O[head]
    match = match_features(directions, planted.subspaces["previous"][1:])
    assert match.recovered > 0.95
    assert match.null_recovered == 0
    scored = score_features(
        model, found, prompts[80:], ["previous_token"], features=match.feature.tolist()
    )
    frame = scored.to_pandas()
    assert (frame["score"] > 0.85).mean() > 0.95
    assert (frame["main_head"] == head).mean() > 0.95


@pytest.mark.slow
def test_dead_features_are_revived() -> None:
    data = superposed(seed=2)
    dead = {}
    for how in ("none", "auxk", "resample"):
        torch.manual_seed(0)
        found = fit_rows(
            data.rows + 3.0,
            d_sae=192,
            k=2,
            steps=400,
            batch_rows=256,
            rate=5e-3,
            dead=how,
            dead_after=20,
        )
        dead[how] = float((found.encode(data.rows + 3.0) > 0).any(0).logical_not().double().mean())
    assert dead["none"] > 0.1
    assert dead["auxk"] < dead["none"] - 0.05
    assert dead["resample"] < dead["none"] - 0.05


def test_gradients_of_jumprelu_are_those_published() -> None:
    from interp.dictionaries.objectives import BANDWIDTH, _Count, _Jump

    threshold = torch.tensor([0.5, 1.0], requires_grad=True)
    near = BANDWIDTH / 4
    pre = torch.tensor([[0.5 + near, 3.0], [0.1, 1.0 - near]], requires_grad=True)
    _Jump.apply(pre, threshold).sum().backward()
    assert pre.grad.tolist() == [[1, 1], [0, 0]]
    assert threshold.grad.tolist() == pytest.approx([-0.5 / BANDWIDTH, -1.0 / BANDWIDTH])
    other = torch.tensor([0.5, 1.0], requires_grad=True)
    _Count.apply(pre.detach(), other).sum().backward()
    assert other.grad.tolist() == pytest.approx([-1 / BANDWIDTH, -1 / BANDWIDTH])


def test_batch_topk_keeps_k_per_row_on_average() -> None:
    rng = torch.Generator().manual_seed(0)
    made = Trainable("batchtopk", 8, 8, 32, 4, torch.zeros(8), False, rng)
    codes = made.codes(made.pre(torch.randn(50, 8)))
    assert int((codes > 0).sum()) == 200
    assert len(set((codes > 0).sum(1).tolist())) > 1


def test_the_same_seed_gives_the_same_dictionary_and_scale_does_not_matter() -> None:
    rows = superposed(seed=3, rows=2000).rows
    one, same, other = (
        fit_rows(x, d_sae=32, k=2, steps=20, seed=s) for x, s in ((rows, 0), (rows, 0), (rows, 1))
    )
    assert torch.equal(one.W_enc, same.W_enc)
    assert not torch.equal(one.W_enc, other.W_enc)
    large = fit_rows(rows * 1000, d_sae=32, k=2, steps=20)
    torch.testing.assert_close(large(rows * 1000), one(rows) * 1000, rtol=1e-3, atol=1e-1)


def test_divergence_is_an_error(bundled_induction) -> None:
    rows = superposed(rows=600).rows
    with pytest.raises(NonFiniteError, match="diverges at step"):
        fit_rows(rows, d_sae=32, k=2, steps=50, rate=1e30)
    with pytest.raises(NonFiniteError, match="all 0 or not finite"):
        fit_rows(rows * torch.nan, d_sae=32)
    for wrong in ({"k": 0}, {"k": 33}, {"steps": 0}, {"rate": 0.0}, {"sparsity": -1.0}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            fit_rows(rows, d_sae=32, **wrong)
    for wrong in ({"architecture": "relu"}, {"dead": "ghost"}):
        with pytest.raises(UnknownName):
            fit_rows(rows, d_sae=32, **wrong)
    with pytest.raises(UnknownName, match="place"):
        train_dictionary(
            bundled_induction, interp.repeats(bundled_induction, n=2), layer=0, site="mlp_in"
        )
    with pytest.raises(PromptError, match="give longer ones"):
        train_dictionary(bundled_induction, [[1], [2]], layer=0)


def test_the_buffer_holds_no_more_rows_than_stated_and_loses_none(bundled_induction) -> None:
    prompts = interp.repeats(bundled_induction, n=12, max_length=10, seed=4)
    site = bundled_induction.site(1)
    z = bundled_induction.capture(Prompts(prompts.ids[:1]), ["z"], layers=1)["z", 1]
    stream = ActivationStream(bundled_induction, prompts, site, ("z", "z"), rows=60, batch_size=1)
    assert stream.memory_bytes == 4 * 60 * 2 * 128 // 2
    batches = stream.batches(16)
    rows = torch.cat([next(batches)[0] for _ in range(3 * stream.total // 16)])
    mine = z[0].transpose(0, 1).flatten(1)[1:]
    gaps = torch.cdist(mine.double(), rows.double()).min(1).values
    assert float(gaps.max()) < 1e-4  # every position of a prompt comes, but the first
    first = z[0].transpose(0, 1).flatten(1)[:1]
    assert float(torch.cdist(first, rows).min()) > 1e-2
    whole = ActivationStream(bundled_induction, prompts, site, ("z", "z"))
    x, _ = next(whole.batches(whole.total))
    assert len(torch.unique(x, dim=0)) == whole.total  # one round without repetition
    with pytest.raises(OptionError, match="buffer of at least 2000"):
        next(stream.batches(1000))
