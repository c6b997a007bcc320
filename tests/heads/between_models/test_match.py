"""Matching of heads: permuted heads are found exactly, random weights match at chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.prompts import repeats
from interp.heads.between_models.matches import HeadMatches
from interp.model.random_weights import RandomWeights
from interp.report.printed.between import matches_text
from training.variants import permuted


@pytest.mark.parametrize("by", ["patterns", "ov", "qk"])
@pytest.mark.parametrize("within", ["layer", "model"])
def test_permuted_heads_are_matched_exactly(bundled_induction, by: str, within: str) -> None:
    other, places = permuted(bundled_induction, 0)
    prompts = repeats(bundled_induction, n=6, max_length=12)
    found = interp.heads.match_heads(
        bundled_induction, other, prompts, method=by, within=within, n_random=99, n_boot=50
    )
    frame = found.to_pandas()
    for row in frame.to_dict("records"):
        assert row["head_b"] == f"L{row['layer']}H{places[row['layer'], row['head']]}"
    assert np.allclose(frame["score"], 1, atol=1e-5)
    assert (frame["stability"] == 1).all()
    assert (frame["null"] < 0.98).all()
    assert found.p_all == pytest.approx(0.01, abs=0.011)
    if by != "qk":  # heads of this model that share keys have nearly one circuit
        assert (frame["p_bh"] < 0.05).all()
    assert not found.provenance["unmatched_b"]


def test_prompts_of_one_length_share_a_forward_pass(bundled_induction) -> None:
    other, _ = permuted(bundled_induction, 0)
    rng = np.random.default_rng(0)
    ids = [rng.integers(5, 60, n).tolist() for n in (12, 8, 8, 8, 12, 12, 12)]
    rows: list[int] = []
    handle = bundled_induction.module.register_forward_pre_hook(
        lambda _, args, given: rows.append(len((*args, *given.values())[0])), with_kwargs=True
    )
    found = {}
    try:
        for size in (1, 2, 16):
            rows.clear()
            found[size] = interp.heads.match_heads(
                bundled_induction, other, ids, batch_size=size, n_random=0, n_boot=0
            )
            assert rows == {1: [1] * 7, 2: [2, 2, 1, 2], 16: [4, 3]}[size]
    finally:
        handle.remove()
    for size in (2, 16):
        assert np.allclose(found[size].per_prompt, found[1].per_prompt, atol=1e-6)
        assert found[size].heads_of_b() == found[1].heads_of_b()
    with pytest.raises(OptionError, match="batch_size must be at least 1, not 0"):
        interp.heads.match_heads(bundled_induction, other, ids, batch_size=0)


def test_heads_of_the_planted_model_are_matched(bundled_induction) -> None:
    """Two builds with different random heads share only the planted ones."""
    from interp import planted

    a, b = (
        interp.load(planted.build("induction", heads=6, seed=s).model, name=f"seed {s}")
        for s in (0, 1)
    )
    roles = [planted.build("induction", heads=6, seed=s).roles for s in (0, 1)]
    found = interp.heads.match_heads(a, b, repeats(a, n=8, max_length=12), n_random=0).heads_of_b()
    for role in ("previous_token", "induction"):
        [head], [match] = (each[role] for each in roles)
        there = found["decoder", *head]
        assert (there.layer, there.head) == match


def test_random_weights_match_at_chance(bundled_induction) -> None:
    """Independent draws of weights are exchangeable: p is as often small as it says."""
    draws = list(RandomWeights(bundled_induction, 0, 24))
    prompts = repeats(bundled_induction, n=4, max_length=8)
    whole, each, same = [], [], 0
    for a, b in zip(draws[::2], draws[1::2], strict=True):
        found = interp.heads.match_heads(a, b, prompts, n_random=99, n_boot=0)
        whole.append(found.p_all)
        frame = found.to_pandas()
        each += frame["p"].tolist()
        same += int(
            (
                frame["head_b"]
                == "L" + frame["layer"].astype(str) + "H" + frame["head"].astype(str)
            ).sum()
        )
    assert np.mean(np.array(whole) < 0.1) <= 0.35  # 12 draws of 0.1
    assert 0.3 < np.mean(whole) < 0.7
    assert np.mean(np.array(each) < 0.05) < 0.12
    assert same / len(each) < 0.3  # one of eight by chance


def test_the_similarity_is_the_mean_coefficient_of_the_patterns(bundled_induction) -> None:
    other, _ = permuted(bundled_induction, 1)
    prompts = repeats(bundled_induction, n=2, max_length=6, seed=4)
    found = interp.heads.match_heads(bundled_induction, other, prompts, n_random=0, n_boot=0)
    expected = []
    for ids in prompts.ids:
        p, q = (
            m.capture([list(ids)])["pattern", 1][0].double() for m in (bundled_induction, other)
        )
        rows = (p[:, None, 1:] * q[None, :, 1:]).clamp_min(0).sqrt().sum(-1)
        expected.append(rows.mean(-1).numpy())
    got = found.similarity["decoder 1"]
    assert np.allclose(got, np.mean(expected, axis=0), atol=1e-6)


def test_a_circuit_is_compared_as_whole_matrices_say(bundled_induction) -> None:
    found = interp.heads.match_heads(
        bundled_induction, "bundled:induction", method="ov", n_random=0, n_boot=0
    )
    from interp.model.locate.weights import embeddings

    ends, site = embeddings(bundled_induction), bundled_induction.site(1)
    whole = ends.W_E() @ bundled_induction.weights_of(site).OV.whole() @ ends.W_U
    keep = [
        i
        for i in range(bundled_induction.d_vocab)
        if i not in bundled_induction.tokenizer.all_special_ids
    ]
    rows = whole[:, keep][:, :, keep]
    rows = rows - rows.mean(-1, keepdim=True)
    rows = rows / rows.norm(dim=-1, keepdim=True)
    expected = torch.einsum("atv,btv->ab", rows, rows) / rows.shape[1]
    assert np.allclose(found.similarity["decoder 1"], expected.detach().numpy(), atol=1e-4)


def test_p_is_corrected_over_the_rows_by_both_methods() -> None:
    p = [0.01, 0.04, 0.03, 0.02]
    rows = tuple(
        {
            "stack": "decoder",
            "layer": 0,
            "head": i,
            "head_b": f"L0H{i}",
            "next": 0.1,
            "null": 0.2,
            "p": x,
            "stability": 1.0,
        }
        for i, x in enumerate(p)
    )
    values = np.random.default_rng(0).uniform(size=(4, 8))
    found = HeadMatches(rows, values, None, "patterns similarity", "coefficient", {})
    frame = found.to_pandas()
    # the smallest times four, the next times three, ...; then none smaller than the one before
    assert frame["p_holm"].tolist() == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert frame["p_bh"].tolist() == pytest.approx([0.04, 0.04, 0.04, 0.04])
    assert found.top(2).to_pandas()["p_holm"].isin(frame["p_holm"]).all()
    few = HeadMatches(rows, values[:, :3], None, "patterns similarity", "coefficient", {})
    assert few.to_pandas()["low"].isna().all()
    assert set(few.to_pandas()["why_no_interval"]) == {"too few: 3 prompts of at least 6"}
    about = {"model": "m", "within": "layer", "unmatched_b": []}
    assert "too few" in matches_text([replace(few, provenance=about)], top=10)


def test_different_numbers_of_heads_leave_some_without_a_match(bundled_induction) -> None:
    from interp import planted

    small = interp.load(planted.build("induction", heads=4).model, name="small")
    large = interp.load(planted.build("induction", heads=6).model, name="large")
    found = interp.heads.match_heads(
        small, large, repeats(small, n=4, max_length=8), n_random=9, n_boot=9
    )
    assert len(found) == 8
    assert len(found.provenance["unmatched_b"]) == 4
    turned = interp.heads.match_heads(
        large, small, repeats(small, n=4, max_length=8), n_random=9, n_boot=9
    )
    assert sum(not row["head_b"] for row in turned.rows) == 4
    assert len(turned.heads_of_b()) == 8


def test_compare_pairs_matched_heads(bundled_induction) -> None:
    other, places = permuted(bundled_induction, 2)
    found = interp.compare(bundled_induction, other, "induction", match="patterns", top=2)
    frame = found.to_pandas()
    assert (frame["p_bh"] == 1).all()
    for row in frame.to_dict("records"):
        assert row["head_b"] == f"L{row['layer']}H{places[row['layer'], row['head']]}"
    plain = interp.compare(bundled_induction, other, "induction", top=0).to_pandas()
    assert (plain["p_holm"] < 0.05).any()


def test_files_page_and_errors(bundled_induction, tmp_path) -> None:
    found = interp.heads.match_heads(
        bundled_induction, permuted(bundled_induction, 0)[0], n_random=9, n_boot=9
    )
    found.save(tmp_path / "x.parquet")
    assert HeadMatches.load(tmp_path / "x.parquet").equals(found)
    found.save(tmp_path / "x.html")
    with pytest.raises(OptionError, match="within='model'"):
        interp.heads.match_heads(bundled_induction, "bundled:one-layer")
    assert (
        len(
            interp.heads.match_heads(
                bundled_induction, "bundled:one-layer", within="model", n_random=0
            )
        )
        == 16
    )
    with pytest.raises(PromptError, match="different vocabularies"):
        interp.heads.match_heads(bundled_induction, "bundled:deceive", method="ov")
    with pytest.raises(UnknownName, match="similarity of heads"):
        interp.heads.match_heads(bundled_induction, bundled_induction, method="weights")


def _without_layer(model, drop: int):
    """A student: the teacher without one layer."""
    import copy

    student = copy.deepcopy(model)
    del student.model.layers[drop]
    for at, layer in enumerate(student.model.layers):
        layer.self_attn.layer_idx = at
    student.config.num_hidden_layers = len(student.model.layers)
    return student


def test_a_student_preserves_what_it_took_over_and_an_unrelated_one_little(wide_bystander) -> None:
    from interp import planted

    teacher = interp.load(wide_bystander.model, name="teacher")
    prompts = repeats(teacher, n=10, max_length=16)
    student = interp.load(_without_layer(wide_bystander.model, 1), name="student")
    found = interp.heads.match_heads(teacher, student, prompts, within="model", n_boot=0)
    shares = found.preserved().set_index("layer")
    assert shares["matched"].tolist() == [16, 8, 0, 8]
    assert shares["layers_b"].tolist() == ["L0: 8, L1: 8", "L0: 8", "", "L1: 8"]
    assert shares.loc[0, "share"] == pytest.approx(1, abs=1e-4)
    assert shares.loc[1, "share"] == 0
    assert 0.9 < shares.loc[2, "share"] < 1
    assert shares.loc[-1, "share"] == pytest.approx(shares.loc[[0, 1, 2], "share"].mean())
    assert shares.loc[-1, "low"] < shares.loc[-1, "share"] < shares.loc[-1, "high"]
    text = matches_text([found])
    assert "share of A's maps that B preserves" in text
    assert "0 of 8 heads" in text
    whole = []
    for seed in range(1, 4):
        built = planted.noise(layers=2, heads=8, kv_heads=4, vocab=48, context=64, seed=seed)
        other = interp.heads.match_heads(
            teacher,
            interp.load(built.model, name="other"),
            prompts,
            within="model",
            n_random=99,
            n_boot=0,
        )
        whole.append(other.preserved()["share"].iloc[0])
    assert max(map(abs, whole)) < 0.12
    assert shares.loc[-1, "share"] > 0.6
    bare = interp.heads.match_heads(teacher, student, prompts, within="model", n_random=0, n_boot=0)
    with pytest.raises(OptionError, match="n_random of at least 1"):
        bare.preserved()
