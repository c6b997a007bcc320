"""The harness: measures by hand, tests against exact counts, a planted cause, resumption."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zoo
from core.kept import finished, unfinished
from scipy import stats

import interp
from interp.attribution import Example
from interp.attribution.declaration import choose_methods
from interp.attribution.evaluation.deceived import warning
from interp.attribution.evaluation.paired import limit, method_differences
from interp.attribution.evaluation.removal import (
    matched_retention,
    one_by_one,
    values_scaled,
    values_without,
)
from interp.attribution.evaluation.result import MEASURES
from interp.attribution.evaluation.run import counts, faithfulness, nearest, read_texts
from interp.bundled.deceive_text import sentences
from interp.core.errors import OptionError, PromptError, StoreError, UnknownName
from interp.core.registry import ATTRIBUTION_METHODS
from interp.core.statistics import least_sign_flip_p
from interp.model.load import load

method = ATTRIBUTION_METHODS.load

SAID = sentences(40_000, 6)
TEXTS = [s.text for s in SAID]
TARGETS = [f"token:{s.right}|{s.wrong}" for s in SAID]


@pytest.fixture(scope="module")
def deceive_model():
    return interp.load("bundled:deceive")


@pytest.fixture(scope="module")
def method_faithfulness(deceive_model):
    methods = ["raw_attention", "attn_lrp"]
    return faithfulness(deceive_model, TEXTS, methods, TARGETS, draws=4)


# --- the pieces ---------------------------------------------------------------------------------


def test_fractions_are_rounded_up_and_at_least_one() -> None:
    assert counts((0.01, 0.1, 0.2, 0.5), 10) == [1, 1, 2, 5]
    assert counts((0.3, 0.5), 7) == [3, 4]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_retention_is_matched_whatever_the_scores(share: float) -> None:
    rng = np.random.default_rng(1)
    for size in (rng.random(12), rng.random(12) ** 8, np.eye(12)[0], np.zeros(12), np.ones(12)):
        p = matched_retention(size, share)
        assert p.mean() == pytest.approx(share, abs=1e-12)
        assert p.min() >= 0
        assert p.max() <= 1
        assert (np.diff(p[np.argsort(size)]) > -1e-12).all()


def test_no_difference_between_equals_is_called_one_more_often_than_allowed() -> None:
    rng, called = np.random.default_rng(2), 0
    for _ in range(60):
        values = {k: rng.normal(size=12) for k in "abcd"}
        called += any(d.p_holm < 0.05 for d in method_differences(values))
    assert called <= 8


@pytest.mark.parametrize("methods", [2, 5, 7])
def test_a_limit_says_from_how_many_texts_a_difference_can_count(methods: int) -> None:
    """The most different methods there can be pass at `needed` texts and not at one fewer."""
    pairs = methods * (methods - 1) // 2

    def apart(n: int) -> dict:
        return {f"m{i}": np.full(n, 10.0**i) for i in range(methods)}

    told = limit(apart(3), 0.05)
    assert (told.texts, told.pairs, told.p) == (3, pairs, 0.25)
    assert not told.can_show
    assert told.needed is not None
    assert f"{told.needed} texts could" in str(told)
    for n, can in ((told.needed - 1, False), (told.needed, True)):
        found = apart(n)
        assert limit(found, 0.05).can_show == can
        tested = method_differences(found)
        assert any(d.p_holm < 0.05 for d in tested) == can
        assert {d.p_least for d in tested} == {least_sign_flip_p(n)}
    assert str(limit(apart(told.needed), 0.05)) == ""
    assert str(limit({"m0": np.ones(3)}, 0.05)) == ""
    missing = apart(6) | {"m0": np.array([1.0, np.nan, np.nan, np.nan, np.nan, np.nan])}
    assert limit(missing, 0.05).texts == (1 if methods == 2 else 6)


def test_a_text_without_a_value_is_left_out_of_its_pairs_only() -> None:
    a, b = np.arange(6.0), np.arange(6.0) + 1
    a[0] = np.nan
    [one, *_] = method_differences({"a": a, "b": b, "c": b})
    assert one.n == 5
    assert one.difference == -1


# --- removal ------------------------------------------------------------------------------------


def test_every_way_of_removal_is_what_it_says(deceive_model) -> None:
    text = TEXTS[0]
    example = Example(deceive_model, text, TARGETS[0])
    gone = one_by_one([2], len(example))
    ids = list(example.ids)
    left = Example(deceive_model, [ids[:2] + ids[3:]], TARGETS[0]).value
    assert values_without(example, gone, "delete")[0] == pytest.approx(left, abs=1e-5)
    other = Example(deceive_model, [[*ids[:2], 9, *ids[3:]]], TARGETS[0]).value
    assert values_without(example, gone, "9")[0] == pytest.approx(other, abs=1e-5)
    whole = values_scaled(example, np.ones((3, len(example), deceive_model.d_model), bool), 2)
    np.testing.assert_allclose(whole, example.value, atol=1e-5)
    same = Example(
        deceive_model, [[7, 7, 7, 7]], TARGETS[0]
    )  # the mean of equal embeddings is each
    np.testing.assert_allclose(
        values_without(same, one_by_one(range(4), 4), "mean"), same.value, atol=1e-5
    )


def test_batches_change_nothing(deceive_model) -> None:
    example = Example(deceive_model, TEXTS[1], TARGETS[1])
    gone = one_by_one(range(len(example)), len(example))
    for how in ("delete", "mean"):
        one, all_at_once = (values_without(example, gone, how, size) for size in (1, 64))
        np.testing.assert_allclose(one, all_at_once, atol=1e-4)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("mask", "has no mask token"),
        ("remove", "known: delete, mask, mean"),
        ("999", "token id 999"),
    ],
)
def test_a_removal_that_is_not_there_is_one_line(deceive_model, how: str, line: str) -> None:
    with pytest.raises(OptionError, match=line):
        method("occlusion").of(Example(deceive_model, TEXTS[0], TARGETS[0]), how=how)


def test_nothing_is_left_of_one_token(deceive_model) -> None:
    with pytest.raises(PromptError, match="nothing is left of an input of 1"):
        method("occlusion").of(Example(deceive_model, [[7]], "she"))


def test_deleting_before_a_position_counted_from_the_front_is_refused(deceive_model) -> None:
    example = Example(deceive_model, TEXTS[0], "she", position=3)
    with pytest.raises(OptionError, match="position 3 of the target would be another"):
        method("occlusion").of(example)
    assert len(method("occlusion").of(example, how="mean").scores) == len(example)


def test_random_scores_are_those_of_their_seed(deceive_model) -> None:
    example = Example(deceive_model, TEXTS[0], TARGETS[0])
    one, two, other = (method("random_scores").of(example, seed=s).scores for s in (0, 0, 1))
    assert (one == two).all()
    assert (one != other).any()


# --- the whole ----------------------------------------------------------------------------------


def test_the_reference_agrees_with_itself_and_random_scores_with_nothing(
    method_faithfulness,
) -> None:
    means = {k: (mean, sem) for k, mean, sem, _ in method_faithfulness.summary("spearman")}
    assert means["occlusion:how=mean"][0] == pytest.approx(1)
    assert abs(means["random_scores"][0]) < 4 * means["random_scores"][1]
    assert means["attn_lrp"][0] > means["raw_attention"][0]
    for measure in MEASURES:
        order = [k for k, _, _, n in method_faithfulness.summary(measure) if n]
        if measure in ("aopc", "sufficiency", "soft_comprehensiveness", "soft_sufficiency"):
            assert order.index("attn_lrp") < order.index("raw_attention"), measure


def test_measures_by_hand(deceive_model, method_faithfulness) -> None:
    at = 2
    example = Example(deceive_model, TEXTS[at], TARGETS[at])
    row = next(r for r in method_faithfulness.rows if r["method"] == "attn_lrp" and r["text"] == at)
    scores = method("attn_lrp").of(example).scores
    order = [int(i) for i in np.argsort(-np.abs(scores), kind="stable") if not example.special[i]]
    n = len(order)
    assert row["tokens"] == n == len(example) - 1

    def fall(tokens: list[int]) -> float:
        gone = np.zeros((1, len(example)), bool)
        gone[0, tokens] = True
        return example.value - float(values_without(example, gone, "mean")[0])

    aopc = np.mean([fall(order[: int(np.ceil(q * n))]) for q in (0.1, 0.2, 0.3, 0.4, 0.5)])
    assert row["aopc"] == pytest.approx(aopc, abs=1e-4)
    signed = [int(i) for i in np.argsort(-scores, kind="stable") if not example.special[i]]
    assert signed != order
    by_score = np.mean([fall(signed[: int(np.ceil(q * n))]) for q in (0.1, 0.2, 0.3, 0.4, 0.5)])
    assert row["aopc_signed"] == pytest.approx(by_score, abs=1e-4)
    assert row["aopc_signed"] != pytest.approx(aopc, abs=1e-3)
    eraser = (0.01, 0.05, 0.1, 0.2, 0.5)
    kept = np.mean([fall(order[max(1, int(np.ceil(q * n))) :]) for q in eraser])
    assert row["sufficiency"] == pytest.approx(kept, abs=1e-4)
    for measure, part in (("comprehensiveness_signed", 0), ("sufficiency_signed", 1)):
        cuts = [max(1, int(np.ceil(q * n))) for q in eraser]
        want = np.mean([fall(signed[c:] if part else signed[:c]) for c in cuts])
        assert row[measure] == pytest.approx(want, abs=1e-4)
    effect = [fall([i]) for i in sorted(order)]
    want = stats.spearmanr(np.abs(scores[sorted(order)]), np.abs(effect)).statistic
    assert row["spearman"] == pytest.approx(want, abs=0.02)


def test_a_method_without_signs_has_one_order(method_faithfulness) -> None:
    for row in method_faithfulness.rows:
        if row["method"] in ("raw_attention", "random_scores"):
            for measure in ("aopc", "comprehensiveness", "sufficiency"):
                assert row[measure] == row[f"{measure}_signed"]
    assert "ERASER" in MEASURES["comprehensiveness_signed"][0]
    assert "|score|" in MEASURES["comprehensiveness"][0]


def test_incomplete_scores_are_counted_and_said(deceive_model, method_faithfulness) -> None:
    shares = {
        r["text"]: r["residual_share"]
        for r in method_faithfulness.rows
        if r["method"] == "attn_lrp"
    }
    high = sum(share > 0.1 for share in shares.values())
    assert method_faithfulness.incomplete == {"attn_lrp": high}
    told = f"Scores miss their total by more than 10% of it: attn_lrp on {high} of 6 texts."
    assert method_faithfulness.incomplete_warning == told
    assert method_faithfulness.to_dict()["incomplete_warning"] == told
    frame = method_faithfulness.texts_to_pandas()
    assert frame.groupby("method")["incomplete"].sum()["attn_lrp"] == high


def test_the_warning_names_what_reads_attention_alone(method_faithfulness) -> None:
    assert "raw_attention" in method_faithfulness.warning
    assert "attn_lrp" not in method_faithfulness.warning
    [told] = [d for d in method_faithfulness.warned if d.method == "raw_attention"]
    assert f"raw_attention {told.rank:.1f}" in method_faithfulness.warning
    assert warning([]) == ""


def test_what_is_saved_can_be_read_and_escapes_what_texts_say(deceive_model, tmp_path) -> None:
    texts = ["with Anna the <script>alert(1)</script> bird so", "a red dog and Carl rests so"]
    result = faithfulness(deceive_model, texts, ["rollout"], "she|he", draws=0)
    files = result.save_folder(tmp_path, command="interp <b>")
    page = files[2].read_text()
    assert "<script" not in page
    assert "interp &lt;b&gt;" in page
    assert result.warning.split(",")[0] in page.replace("&#x27;", "'")
    whole = json.loads(files[1].read_text())
    assert whole["summary"]["soft_sufficiency"][0]["mean"] is None
    assert whole["provenance"]["how"] == "mean"
    frame = result.texts_to_pandas()
    assert len(frame) == 2 * 4
    assert list(frame["method"].unique()) == result.methods
    figure = result.plot(measure="aopc")
    assert len(figure.data[0].x) == 4


def test_an_interrupted_run_goes_on_and_gives_the_same(deceive_model, tmp_path) -> None:
    keep = tmp_path / "kept"
    options = {"draws": 1, "warn": False, "resume": keep}

    def killed(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # after the first of two texts
        faithfulness(
            deceive_model, TEXTS[:2], ["raw_attention"], TARGETS[:2], progress=killed, **options
        )
    first = unfinished(keep)
    assert len(first) == 4
    whole = faithfulness(
        deceive_model, TEXTS[:2], ["raw_attention"], TARGETS[:2], draws=1, warn=False
    )
    again = faithfulness(deceive_model, TEXTS[:2], ["raw_attention"], TARGETS[:2], **options)
    assert again.rows == whole.rows
    kept = finished(keep)
    assert len(kept) == 8
    assert first.items() <= kept.items()
    assert not unfinished(keep)
    more = faithfulness(
        deceive_model, TEXTS[:2], ["raw_attention", "attn_lrp"], TARGETS[:2], **options
    )
    assert [r for r in more.rows if r["method"] == "raw_attention"] == list(whole.rows[:2])
    other = faithfulness(
        deceive_model, TEXTS[:2], ["raw_attention"], TARGETS[:2], how="delete", **options
    )
    alone = faithfulness(
        deceive_model, TEXTS[:2], ["raw_attention"], TARGETS[:2], how="delete", draws=1, warn=False
    )
    assert other.rows == alone.rows, "rows of another run are not used"
    assert len(list(keep.glob("*.faithfulness.*.parquet"))) == 2
    with pytest.raises(StoreError, match="is a file, not a folder"):
        faithfulness(
            deceive_model,
            TEXTS[:2],
            ["raw_attention"],
            TARGETS[:2],
            **options | {"resume": Path(__file__)},
        )


def test_a_method_that_fails_is_told_not_dropped(deceive_model) -> None:
    result = faithfulness(
        deceive_model,
        TEXTS[:2],
        ["occlusion:how=mask", "raw_attention"],
        TARGETS[:2],
        draws=0,
        warn=False,
    )
    assert [(m, t) for m, t, _ in result.failures] == [
        ("occlusion:how=mask", 0),
        ("occlusion:how=mask", 1),
    ]
    assert "no mask token" in result.failures[0][2]
    assert {k: n for k, _, _, n in result.summary("aopc")}["occlusion:how=mask"] == 0
    assert all("how=mask" not in (d["first"], d["second"]) for d in result.differences("aopc"))


def test_the_nearest_other_text_is_that_of_largest_cosine() -> None:
    model = load(zoo.FAMILIES["bert"].model("eager").bert, name="bert", check=False)
    texts = [[5, 6, 7, 8], [9, 3, 4, 11], [5, 6, 7, 12]]
    assert nearest(model, texts)[0] == 2  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="at least two"):
        nearest(model, texts[:1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("texts", "methods", "options", "error", "line"),
    [
        ([], ["rollout"], {}, PromptError, "no texts given"),
        (["so"], ["rollout"], {}, PromptError, "has 1 token.s. that are not special"),
        (TEXTS[:1], ["rolout"], {}, UnknownName, "did you mean rollout"),
        (TEXTS[:1], ["rollout:residal=1"], {}, UnknownName, "did you mean residual"),
        (TEXTS[:1], ["rollout,rollout"], {}, OptionError, "asked for twice"),
        (TEXTS[:1], [""], {}, OptionError, "no attribution method is named"),
        (TEXTS[:1], ["rollout"], {"share": 1.0}, OptionError, "between 0 and 1"),
        (TEXTS[:1], ["rollout"], {"targets": ["she", "he"]}, OptionError, "2 targets for 1 inputs"),
        (TEXTS[:1], ["rollout"], {"targets": "hee"}, PromptError, "not a single token|vocabulary"),
    ],
)
def test_bad_input_is_one_line(deceive_model, texts, methods, options, error, line: str) -> None:
    with pytest.raises(error, match=line) as told:
        faithfulness(deceive_model, texts, methods, **({"targets": "she"} | options))
    assert "\n" not in str(told.value)


def test_a_file_without_text_and_no_file(tmp_path) -> None:
    (tmp_path / "empty.txt").write_text("\n  \n")
    with pytest.raises(PromptError, match="holds no text"):
        read_texts(tmp_path / "empty.txt")
    with pytest.raises(PromptError, match="cannot be read"):
        read_texts(tmp_path / "none.txt")


def test_options_are_part_of_the_label() -> None:
    one, two = choose_methods(["rollout:residual=0.3,heads=max", "raw_attention:layer=-1"])
    assert one.label == "rollout:heads=max,residual=0.3"
    assert two.label == "raw_attention"
