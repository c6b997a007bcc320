"""Maps of features and Lorsa heads, their scores by detectors, the command, and Lorsa itself."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError, StoreError
from interp.dictionaries import (
    load_dictionary,
    load_lorsa,
    monosemanticity,
    profile_heads,
    profile_lorsa,
    save_lorsa,
    score_features,
    score_lorsa,
    train_dictionary,
    train_lorsa,
)
from interp.dictionaries.explained_attention import difference_of_kinds, means_by_kind
from interp.dictionaries.lorsa import Lorsa
from interp.dictionaries.unit_maps import FeatureUnits


def lorsa_of(seed: int = 0, **about) -> Lorsa:
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    return Lorsa(
        draw(2, 5, 4),
        draw(2, 5, 4),
        draw(6, 5),
        draw(6, 5),
        draw(2, 4),
        draw(2, 4),
        draw(6),
        draw(5),
        k=2,
        layer=0,
        **about,
    )


def test_lorsa_is_its_formula_and_keeps_exactly_k() -> None:
    """Head by head and position by position, without matrix products of several heads."""
    lorsa = lorsa_of()
    x = torch.randn(1, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    z = np.zeros((7, 6))
    for head in range(6):
        shared = head // 3
        for i in range(7):
            q = x[0, i] @ lorsa.W_Q[shared] + lorsa.b_Q[shared]
            scores = [
                float(q @ (x[0, j] @ lorsa.W_K[shared] + lorsa.b_K[shared])) / 2
                for j in range(i + 1)
            ]
            weights = np.exp(scores) / np.exp(scores).sum()
            values = [float(x[0, j] @ lorsa.W_V[head] + lorsa.b_V[head]) for j in range(i + 1)]
            z[i, head] = weights @ values
    np.testing.assert_allclose(lorsa.encode(x)[0], z, atol=1e-12)
    size = np.abs(z) * np.linalg.norm(lorsa.W_O.numpy(), axis=1)
    kept = np.zeros_like(z)
    for i in range(7):
        kept[i, np.argsort(-size[i])[:2]] = 1
    assert lorsa.kept(lorsa.encode(x)).sum(-1).unique().tolist() == [2]
    wanted = (z * kept) @ lorsa.W_O.numpy() + lorsa.b_O.numpy()
    np.testing.assert_allclose(lorsa(x)[0], wanted, atol=1e-12)


def test_rotary_scores_depend_on_distance_alone() -> None:
    lorsa = lorsa_of(rotary=100.0)
    same = torch.randn(1, 1, 5, dtype=torch.float64).expand(1, 8, 5)
    scores = lorsa.scores(same)[0, 0]
    for gap in (0, 1, 3):
        assert scores.diagonal(-gap).std() < 1e-10
    assert float(scores[5, 5] - scores[5, 2]) != pytest.approx(0, abs=1e-3)
    narrow = lorsa_of(window=2).patterns(same)[0, 0]
    assert (narrow > 0).sum(-1).tolist() == [1, 2, 2, 2, 2, 2, 2, 2]


def test_a_map_of_a_feature_sums_to_what_its_encoder_reads(bundled_induction) -> None:
    model = bundled_induction
    prompts = interp.repeats(model, n=2, max_length=6)
    for site in ("z", "attn_out"):
        d = train_dictionary(
            model, prompts, layer=1, site=site, d_sae=12, k=2, steps=2, batch_rows=4
        ).dictionary
        features = [0, 5, 11]
        units = FeatureUnits.of(model, d, features, model.site(1))
        cache = model.capture([prompts.ids[0]], ["z", site], layers=1)
        seen = {}

        def visit(here, call, real, units=units, seen=seen):
            if here.layer == 1:
                rows, seen["active"] = units.maps(call, real)
                seen["map"] = rows(torch.arange(call.z.shape[2]))

        model.read(interp.Prompts((prompts.ids[0],)), visit)
        x = cache[site, 1]
        x = x.transpose(1, 2).flatten(2) if site == "z" else x
        read = (x @ d.W_enc[:, features])[0]
        torch.testing.assert_close(seen["map"][0].sum(-1).T, read, atol=1e-4, rtol=1e-4)
        assert torch.equal(seen["active"][0].T, (d.encode(x)[0] > 0)[:, features])


def test_heads_score_as_they_do_as_heads(bundled_induction) -> None:
    model = bundled_induction
    prompts = interp.repeats(model, n=6, max_length=10)
    names = ["induction", "previous_token"]
    mine = profile_heads(model, prompts, 1, names).to_pandas()
    table = interp.score(model, names, prompts, null="none").to_pandas()
    for name in names:
        theirs = table[(table["metric"] == name) & (table["layer"] == 1)]["score"]
        np.testing.assert_allclose(mine[mine["metric"] == name]["score"], theirs, atol=1e-6)
    assert (mine[mine["metric"] == "induction"]["score"] > 0.7).all()
    shuffled = mine[mine["metric"] == "induction"]
    assert (shuffled["null"] < shuffled["score"] - 0.5).all()


def test_monosemanticity_is_one_for_one_detector_and_zero_for_uniform_attention() -> None:
    planted = interp.load("planted:induction")
    from interp.planted import build

    [(layer, head)] = build("induction").roles["previous_token"]
    rng = np.random.default_rng(0)
    prompts = [[0, *rng.integers(1, planted.d_vocab, 24).tolist()] for _ in range(8)]
    found = monosemanticity({"head": profile_heads(planted, prompts, layer)})
    frame = found.to_pandas().set_index("unit_name")
    mine = frame.loc[f"L{layer}H{head}"]
    assert mine["score"] > 0.95
    assert mine["detector"] == "previous_token"
    wide = planted.d_model
    uniform = Lorsa(
        torch.zeros(2, wide, 4),
        torch.zeros(2, wide, 4),
        torch.ones(4, wide),
        torch.ones(4, wide),
        torch.zeros(2, 4),
        torch.zeros(2, 4),
        torch.ones(4),
        torch.zeros(wide),
        k=4,
        layer=0,
    )
    both = monosemanticity(
        {
            "head": profile_heads(planted, prompts, 0),
            "lorsa": profile_lorsa(planted, uniform, prompts),
        }
    )
    assert means_by_kind(both).set_index("kind").loc["lorsa", "score"] == pytest.approx(0, abs=1e-6)
    gap = difference_of_kinds(both, "head", "lorsa")
    assert gap["low"] > 0
    assert gap["p"] == 2 / 2**8
    with pytest.raises(OptionError, match="no units 'feature'"):
        difference_of_kinds(both, "feature", "head")
    with pytest.raises(OptionError, match="at least 4"):
        monosemanticity({"head": profile_heads(planted, prompts[:3], 0)})


def test_a_lorsa_layer_learns_and_its_file_gives_it_back(bundled_induction, tmp_path) -> None:
    model = bundled_induction
    train = interp.repeats(model, n=100, max_length=16)
    found = train_lorsa(model, train, layer=1, n_heads=64, k=8, steps=200)
    assert found.k[0] > 8
    assert found.k[-1] == 8
    scores = score_lorsa(model, found, interp.repeats(model, n=8, max_length=16, seed=9))
    frame = scores.to_pandas().set_index(["layer_kind", "metric"])
    trained, untrained = (frame.loc[(k, "explained_variance")] for k in ("trained", "untrained"))
    assert trained["low"] > max(untrained["high"], 0.1)
    assert trained["null"] == untrained["score"]
    save_lorsa(found.lorsa, tmp_path / "l.safetensors")
    again = load_lorsa(tmp_path / "l.safetensors")
    x = torch.randn(1, 4, 128)
    assert torch.equal(again(x), found.lorsa(x))
    (tmp_path / "l.safetensors").write_bytes(b"nothing")
    with pytest.raises(StoreError, match="does not hold a Lorsa layer"):
        load_lorsa(tmp_path / "l.safetensors")


def test_features_of_streams_have_no_map(bundled_induction) -> None:
    model = bundled_induction
    prompts = interp.repeats(model, n=4, max_length=6)
    d = train_dictionary(
        model, prompts, layer=0, site="resid_post", d_sae=8, k=2, steps=1, batch_rows=4
    ).dictionary
    with pytest.raises(OptionError, match="no map that detectors can read"):
        score_features(model, d, prompts)
    with pytest.raises(OptionError, match="entropy"):
        profile_heads(model, prompts, 0, ["entropy"])


def test_the_command_trains_writes_and_reads(run, tmp_path) -> None:
    quick = ("-n", "20", "--max-length", "12", "-q")
    out = tmp_path / "made"
    done = run(
        "train",
        "dictionary",
        "bundled:induction",
        "--layer",
        "1",
        "--set",
        "n_features=24",
        "--set",
        "k=2",
        "--set",
        "steps=3",
        "--set",
        "features",
        *quick,
        "-o",
        out,
    )
    assert done.exit_code == 0, done.output
    assert "loss_recovered: trained" in done.stdout
    assert "Monosemanticity" in done.stdout
    assert load_dictionary(out, "bundled:induction").d_sae == 24
    assert json.loads((out / "scores.json").read_text())
    again = run("train", "dictionary", "bundled:induction", "--load", out, *quick)
    assert again.exit_code == 0, again.output
    lorsa = run(
        "train",
        "dictionary",
        "bundled:induction",
        "--layer",
        "1",
        "--set",
        "lorsa",
        "--set",
        "n_features=8",
        "--set",
        "k=2",
        "--set",
        "steps=2",
        *quick,
    )
    assert lorsa.exit_code == 0, lorsa.output
    mixed = ("--layer", "0", "--set", "lorsa", "--site", "attn_out")
    for wrong, told in (((), "--layer to train"), (("--layer", "9"), "9"), (mixed, "leave out")):
        bad = run("train", "dictionary", "bundled:induction", *wrong, *quick)
        assert bad.exit_code != 0
        assert told in bad.output
    assert not math.isnan(float(load_dictionary(out).W_dec.sum()))


def test_lorsa_holds_batches_until_it_has_enough_positions(bundled_one_layer) -> None:
    """More than enough ends it too: a batch rarely ends at the number that was asked for."""
    from interp.core.prompts import Prompts
    from interp.dictionaries.lorsa_training import FIRST, _held

    prompts = Prompts(tuple((1, *range(10, 19)) for _ in range(8)))
    each = 2 * (10 - FIRST)
    held = _held(bundled_one_layer, prompts, bundled_one_layer.sites[0], 2, each + 1)
    assert [int(kept.sum()) for _, _, kept in held] == [each, each]
