"""Comparison of models: planted differences are found, equal models differ in nothing."""

from __future__ import annotations

import copy
import html

import numpy as np
import pandas as pd
import pytest
import torch

import interp
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import repeats
from interp.heads.between_models.answer import role_changes
from interp.heads.between_models.measured import of_table
from interp.heads.between_models.paired import paired_differences
from interp.heads.between_models.result import ModelDifferences
from interp.heads.roles.result import Evidence, HeadRole, HeadRoles
from interp.heads.scoring import default_prompts
from training.variants import fine_tuned, noisy_head


def test_a_planted_difference_is_found_and_nothing_else(bundled_induction) -> None:
    found = interp.compare(
        bundled_induction, noisy_head(bundled_induction, 1, 0, 0, 1.0), ["induction", "entropy"]
    )
    frame = found.to_pandas()
    named = frame[(frame["p_holm"] < 0.05) | (frame["p_bh"] < 0.05)]
    tested = frame.dropna(subset="p").sort_values("p")
    steps = (tested["p"] * np.arange(len(tested), 0, -1)).cummax().clip(upper=1)  # Holm's
    np.testing.assert_allclose(tested["p_holm"], steps)
    assert {(r["layer"], r["head"]) for r in named.to_dict("records")} == {(1, 0)}
    assert set(named["metric"]) == {"induction", "entropy"}
    others = frame[(frame["layer"] != 1) | (frame["head"] != 0)]
    assert (others["score"] == 0).all()
    assert (others["p"] == 1).all()
    row = found["induction"].top(1).to_pandas().iloc[0]
    assert row["score"] == pytest.approx(row["score_b"] - row["score_a"])
    assert row["low"] < row["score"] < row["high"] < 0
    assert set(found.pattern_changes()["head"]) == {"L1H0"}


def test_a_fine_tune_of_one_head_is_found(bundled_induction) -> None:
    found = interp.compare(
        bundled_induction, fine_tuned(bundled_induction, 1, 5, steps=20), ["induction", "entropy"]
    )
    named = [row for row in found.to_pandas().to_dict("records") if row["p_bh"] < 0.05]
    assert {(row["layer"], row["head"]) for row in named} == {(1, 5)}


def test_the_difference_is_that_of_two_separate_scores(bundled_induction) -> None:
    other = noisy_head(bundled_induction, 0, 3, 1, 0.5)
    prompts = repeats(bundled_induction, n=6, seed=3)
    found = interp.compare(bundled_induction, other, "previous_token", prompts, top=0).to_pandas()
    a, b = (
        interp.score(m, "previous_token", prompts, null="none") for m in (bundled_induction, other)
    )
    gap = b.to_pandas()["score"] - a.to_pandas()["score"]
    assert np.allclose(found["score"], gap, atol=2e-6)
    tables = interp.compare(a, b, "previous_token").to_pandas()
    assert np.allclose(tables["score"], found["score"])
    assert np.allclose(tables["p"], found["p"])


def test_a_changed_pattern_is_where_the_patterns_say(bundled_induction) -> None:
    other = noisy_head(bundled_induction, 1, 2, 2, 1.0)
    prompts = repeats(bundled_induction, n=3, seed=1)
    found = interp.compare(bundled_induction, other, "induction", prompts, top=1)
    place = found.pattern_changes().iloc[0]
    one = [list(prompts.ids[int(place["prompt"])])]
    p, q = (m.capture(one)["pattern", 1][0, 2].double() for m in (bundled_induction, other))
    change = (p - q).abs().sum(-1) / 2
    assert int(change.argmax()) == place["query"]
    assert float(change.max()) == pytest.approx(place["change"], abs=1e-6)
    moved = (q - p)[int(place["query"])]
    assert int(moved.argmin()) == place["lost_key"]
    assert int(moved.argmax()) == place["gained_key"]


def test_a_model_does_not_differ_from_itself_or_from_a_rescaled_copy(bundled_induction) -> None:
    found = interp.compare(bundled_induction, "bundled:induction")
    assert (found.to_pandas()["p_bh"] == 1).all()
    assert len(found.pattern_changes()) == 0
    module = copy.deepcopy(bundled_induction.module)
    with torch.no_grad():
        for layer in module.model.layers:  # the same function, with other rounding
            layer.self_attn.q_proj.weight *= 3.0
            layer.self_attn.k_proj.weight /= 3.0
    same = interp.load(module, name="rescaled", tokenizer=bundled_induction.tokenizer)
    assert (interp.compare(bundled_induction, same).to_pandas()["p_bh"] == 1).all()


def test_false_findings_are_rare_where_only_prompts_differ(bundled_induction) -> None:
    """The null with noise: the same model on two draws of prompts, paired arbitrarily."""
    rng, false, tests = np.random.default_rng(0), 0, 0
    drawn = [
        interp.score(
            bundled_induction,
            "induction",
            repeats(bundled_induction, n=120, max_length=12, seed=s),
            null="none",
        )
        for s in (0, 1)
    ]
    a, b = (of_table(table, "induction") for table in drawn)
    for _ in range(60):
        pick = rng.choice(120, 24, replace=False)
        sides = [
            {"induction": type(x)({k: v[pick] for k, v in x.sites.items()}, None, False, "", {})}
            for x in (a, b)
        ]
        found = paired_differences(sides[:1], sides[1:])
        false += any(p < 0.05 for p in found.p_holm or ())
        tests += 1
    assert false / tests <= 0.05 + 2 * (0.05 * 0.95 / tests) ** 0.5


def test_seeds_are_a_factor(bundled_induction) -> None:
    """Noise between seeds hides a difference that is clear between two of the models."""
    shifts = (0.4, 0.45, 0.5)
    a = [noisy_head(bundled_induction, 1, 4, s, x) for s, x in enumerate(shifts)]
    b = [noisy_head(bundled_induction, 1, 4, s + 10, x) for s, x in enumerate(shifts)]
    group = interp.compare(a, b, "induction", top=0)
    row = group.to_pandas().query("layer == 1 and head == 4").iloc[0]
    assert row["n_a"] == row["n_b"] == 3
    each = [interp.score(m, "induction", null="none").matrix("induction")[1, 4] for m in (*a, *b)]
    assert row["score_a"] == pytest.approx(np.mean(each[:3]), abs=1e-6)
    assert row["spread_b"] == pytest.approx(np.std(each[3:], ddof=1), abs=1e-6)
    between = (np.var(each[:3], ddof=1) + np.var(each[3:], ddof=1)) / 3
    assert row["sem"] ** 2 >= between * (1 - 1e-6)
    alone = interp.compare(a[0], b[0], "induction", top=0).to_pandas()
    one = alone.query("layer == 1 and head == 4").iloc[0]
    assert one["p"] < row["p"]
    pairs = interp.compare(a, b, "induction", top=0, paired=True).to_pandas()
    gaps = np.array(each[3:]) - np.array(each[:3])
    told = pairs.query("layer == 1 and head == 4")["spread_paired"].iloc[0]
    assert told == pytest.approx(gaps.std(ddof=1), abs=1e-6)


def test_scores_of_weights_have_a_difference_and_no_p(bundled_induction) -> None:
    found = interp.compare(
        bundled_induction, noisy_head(bundled_induction, 0, 1, 5, 1.0), "qk_norm"
    )
    frame = found.to_pandas()
    assert frame["p"].isna().all()
    assert (frame["score"].abs() > 1e-3).sum() == 1


def test_files_and_page(bundled_induction, tmp_path) -> None:
    found = interp.compare(
        bundled_induction, noisy_head(bundled_induction, 1, 0, 0, 1.0), ["induction", "first_token"]
    )
    found.save(tmp_path / "x.parquet")
    assert ModelDifferences.load(tmp_path / "x.parquet").equals(found)
    found.save(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "The same text in both" in page
    assert "p_holm" in page


def test_vocabularies_are_compared_before_any_model_is_scored(
    bundled_induction, monkeypatch
) -> None:
    from interp.heads import scoring

    monkeypatch.setattr(scoring, "score", lambda *_, **__: pytest.fail("a model was scored"))
    for metrics, match, error in (
        ("induction", None, PromptError),
        ("ov_copying", "ov", PromptError),
        ("retrieval", None, OptionError),
    ):
        with pytest.raises(error, match="vocabular"):
            interp.compare(bundled_induction, "bundled:deceive", metrics, match=match)


def test_models_that_cannot_be_compared_are_refused(bundled_induction) -> None:
    with pytest.raises(OptionError, match=r"2 layers of 8 heads.*1 layers.*match_heads"):
        interp.compare(bundled_induction, "bundled:one-layer", "induction")
    with pytest.raises(PromptError, match="different vocabularies"):
        interp.compare(bundled_induction, "bundled:deceive", "induction")
    with pytest.raises(PromptError, match="unknown token"):
        interp.compare(
            bundled_induction, "bundled:deceive", "induction", ["it went on and on", "ab ab"]
        )
    a, b = (
        interp.score(
            bundled_induction,
            "induction",
            repeats(bundled_induction, n=16, max_length=8, seed=s),
            null="none",
        )
        for s in (0, 1)
    )
    with pytest.raises(OptionError, match=r"other prompts|same prompts"):
        interp.compare(a, b, "induction")
    with pytest.raises(OptionError, match="as many models"):
        interp.compare([bundled_induction], [bundled_induction, bundled_induction], paired=True)
    with pytest.raises(OptionError, match="needs models"):
        interp.compare(a, a, "induction", match="patterns")


# --- the answer -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without_l0h3(bundled_induction) -> ModelDifferences:
    """The induction model against itself with a disturbed previous-token head."""
    return interp.compare(bundled_induction, noisy_head(bundled_induction, 0, 3, 1, 3.0), top=2)


def test_the_answer_names_roles_heads_and_loss(without_l0h3, bundled_induction) -> None:
    answer = without_l0h3.answer
    assert answer is not None
    role = {x.role: x for x in answer.roles}["previous-token head"]
    assert "L0H3" in role.before
    assert role.lost == ("L0H3",)
    assert not role.gained
    assert "loses " in answer.sentence
    assert f"1 of {len(role.before)} previous-token heads" in answer.sentence
    prompts = default_prompts(bundled_induction, 0)
    other = noisy_head(bundled_induction, 0, 3, 1, 3.0)
    losses = [_mean_losses(m, prompts) for m in (bundled_induction, other)]
    assert answer.loss is not None
    assert [answer.loss.a, answer.loss.b] == pytest.approx([x.mean() for x in losses], rel=1e-5)
    assert answer.loss.low < answer.loss.b - answer.loss.a < answer.loss.high
    assert f"rises from {answer.loss.a:.3g} to {answer.loss.b:.3g}" in answer.sentence


def _mean_losses(model: interp.Model, prompts) -> np.ndarray:
    with torch.no_grad():
        logits = [model.module(torch.tensor([ids])).logits[0, :-1] for ids in prompts.ids]
    wanted = [torch.tensor(ids[1:]) for ids in prompts.ids]
    pairs = zip(logits, wanted, strict=True)
    return np.array([float(torch.nn.functional.cross_entropy(x, y)) for x, y in pairs])


def test_heads_are_ordered_over_all_metrics(bundled_induction) -> None:
    """Not in the order of the metrics: the second one has the largest change."""
    a = noisy_head(bundled_induction, 1, 0, 1, 3.0)
    other = noisy_head(a, 0, 6, 2, 0.02)
    found = interp.compare(bundled_induction, other, ["previous_token", "induction"], top=1)
    assert found.answer is not None
    first = found.answer.heads[0]
    assert (first.head, first.metric, first.differs) == ("L1H0", "induction", True)
    assert set(found.pattern_changes()["head"]) == {"L1H0"}
    shares = [x.share for x in found.answer.heads if x.differs]
    assert shares == sorted(shares, reverse=True)


def test_the_answer_is_the_same_everywhere(without_l0h3, tmp_path) -> None:
    from interp.report.atlas.between_models import difference_part
    from interp.report.printed.between import differences_text

    answer = without_l0h3.answer
    assert answer is not None
    printed = differences_text([without_l0h3], top=5).splitlines()
    assert [line.strip() for line in printed[1 : 1 + len(answer.lines())]] == answer.lines()
    without_l0h3.save(tmp_path / "x.html")
    page = html.unescape((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert f"<h1>{answer.sentence.rstrip('.')}</h1>" in page
    assert answer.loss.summary() in page
    for one in answer.roles:
        assert f">{one.role}</th><td>{len(one.before)}</td><td>{len(one.after)}</td>" in page
    assert difference_part(without_l0h3).part["text"] == answer.sentence
    assert answer.sentence in repr(without_l0h3)
    assert without_l0h3["induction"].top(1).answer is answer


def test_no_change_is_claimed_of_a_model_and_itself(bundled_induction) -> None:
    answer = interp.compare(bundled_induction, "bundled:induction", top=0).answer
    assert answer is not None
    assert not answer.heads
    assert all(not (x.lost or x.gained or x.open) for x in answer.roles)
    assert {x.role for x in answer.roles} >= {"induction head", "previous-token head"}
    assert "gains and loses no role; none of 16 heads differs significantly" in answer.sentence
    assert "does not change significantly" in answer.sentence


def test_a_role_at_its_threshold_is_not_a_change() -> None:
    """A head that has the role on one side only, without a significant difference, is open."""
    rows = pd.DataFrame(
        [
            {"stack": "decoder", "layer": 0, "head": h, "metric": "induction", "p_holm": p}
            for h, p in ((0, 0.2), (1, 1e-4))
        ]
    )
    a, b = (
        HeadRoles(
            tuple(
                HeadRole(
                    "m",
                    "decoder",
                    0,
                    h,
                    role,
                    (role,) if role != "unclear" else (),
                    (),
                    (Evidence("induction", "", "induction"),) if role != "unclear" else (),
                )
                for h, role in enumerate(named)
            ),
            {},
        )
        for named in (("induction", "induction"), ("unclear", "unclear"))
    )
    (one,) = role_changes(a, b, rows, None)
    assert (one.lost, one.open, one.gained) == (("L0H1",), ("L0H0",), ())
    (back,) = role_changes(b, a, rows, None)
    assert (back.gained, back.open, back.lost) == (("L0H1",), ("L0H0",), ())


def test_models_of_other_depth_are_compared_by_matched_heads(bundled_induction) -> None:
    found = interp.compare(
        bundled_induction, "bundled:one-layer", "induction", match="patterns", top=0
    )
    answer = found.answer
    assert answer is not None
    role = next(x for x in answer.roles if x.role == "induction head")
    assert len(role.lost) == len(role.before) == 8
    assert "loses 8 of 8 induction heads" in answer.sentence


def test_groups_have_a_loss_and_no_roles(bundled_induction) -> None:
    others = [noisy_head(bundled_induction, 0, 3, s, 3.0) for s in (1, 2)]
    answer = interp.compare(
        [bundled_induction, "bundled:induction"], others, "induction", top=0
    ).answer
    assert answer is not None
    assert answer.loss is not None
    assert answer.sentence.startswith("B was not compared by roles")
    assert "not of groups" in answer.why_no_roles
