"""The planted head that reads a corner is located and corrected; a clean model has none."""

from __future__ import annotations

import numpy as np
import pytest
from vision.towers import drawn, shapes

from interp.core.errors import OptionError
from interp.core.intervals import difference_of_shares
from interp.core.statistics import holm
from interp.vision import correct_spurious_heads, locate_spurious_heads
from interp.vision.correction import WORST, _direct, accuracy_rows, bounds_of_worst, worst_accuracy
from interp.vision.result import paired_columns
from interp.vision.spurious import (
    _difference,
    _follows,
    _influence,
    _permuted,
    _votes,
    cued_images,
)

PLANTED = "L2H1"


def located(name: str = "shapes-spurious"):
    images = drawn()
    return locate_spurious_heads(shapes(name), images, images.labels, images.cues)


def test_the_planted_head_is_located_and_no_other() -> None:
    frame = located().to_pandas().set_index("part")
    assert frame.index[frame["spurious"]].tolist() == [PLANTED]
    assert frame.loc[PLANTED, "score"] > 0.9
    assert "L2H2" in frame.index[frame["target"]]
    assert not (frame["target"] & frame["spurious"]).any()
    assert located().notes["wrong images follow the cue"]


def test_a_clean_model_has_none() -> None:
    found = located("shapes").to_pandas()
    assert not found["spurious"].any()
    assert not found["target"].any()
    images = drawn(101)
    corrected = correct_spurious_heads(
        shapes(), images, images.labels, images.cues, located("shapes")
    )
    assert corrected.spurious == ()
    np.testing.assert_array_equal(corrected.before, corrected.after)


def test_votes_by_hand() -> None:
    votes = np.array([0, 0, 1, 2, 1, 1])
    wrong = np.array([True, True, True, False, False, False])
    np.testing.assert_allclose(_difference(votes, wrong, 3), [2 / 3, 1 / 3 - 2 / 3, -1 / 3])
    assert _follows(np.array([1] * 20), np.array([1] * 20), 4)
    assert not _follows(np.array([1] * 20), np.array([2] * 20), 4)
    assert not _follows(np.array([1, 2, 3] * 20), np.array([1, 1, 1] * 20), 4)  # one in three


def test_p_values_are_two_sided_and_corrected() -> None:
    votes, wrong = np.array([0, 0, 1, 1]), np.array([True, True, False, False])
    score = _difference(votes, wrong, 2)
    p = _permuted(votes, wrong, 2, score, 1999, 0)
    np.testing.assert_allclose(p, 2 / 6, atol=0.04)  # of 6 equally likely orders, 2 reach it
    images = drawn().part(slice(0, 60))
    given = (shapes("shapes-spurious"), images, images.labels, images.cues)
    found = locate_spurious_heads(*given, n_permutations=99)
    held = cued_images(*given, None, 64)
    votes, wrong, _ = _votes(held, held.biased)
    p = _permuted(votes, wrong, 12, _difference(votes, wrong, 12), 99, 0)
    assert found.extra["p_holm"] == tuple(holm(p).tolist())
    assert holm(p).min() > p.min()


def test_the_error_is_that_of_a_difference_of_shares() -> None:
    rng = np.random.default_rng(0)
    votes, wrong = rng.integers(0, 3, 60), rng.random(60) < 0.4
    score = _difference(votes, wrong, 3)
    each = _influence(votes, wrong, 3, score)
    np.testing.assert_allclose(each.mean(1), score)
    a, b = ((votes[x, None] == np.arange(3)).astype(float) for x in (wrong, ~wrong))
    by_hand = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
    np.testing.assert_allclose(each.std(1) / 60**0.5, by_hand)


def test_votes_that_all_agree_have_an_error_and_an_interval() -> None:
    images = drawn()
    model = shapes("shapes-spurious")
    found = locate_spurious_heads(model, images, images.labels, images.cues, n_permutations=99)
    frame, wrong = found.to_pandas().set_index("part"), found.notes["of them wrong"]
    planted = frame.loc[PLANTED]
    right = found.notes["images whose cue conflicts"] - wrong
    assert planted["votes_wrong"] == wrong
    assert planted["votes_right"] == 0
    want = difference_of_shares(np.array(wrong), wrong, np.array(0), right)
    assert planted[["sem", "low", "high"]].tolist() == pytest.approx([want[0], *want[1]])
    assert planted["high"] == 1
    assert planted["low"] < 0.95
    assert (frame["sem"] > 0).all()
    assert ((frame["low"] <= frame["score"]) & (frame["score"] <= frame["high"])).all()
    assert found.interval(0.5)["low"].iloc[0] > frame["low"].iloc[0]
    np.testing.assert_allclose(
        frame["votes_wrong"] / wrong - frame["votes_right"] / right, frame["score"]
    )


def test_correction_raises_the_worst_group_on_other_images() -> None:
    images = drawn(101)
    given = (shapes("shapes-spurious"), images, images.labels, images.cues)
    direct = correct_spurious_heads(*given, located(), n_random=2)
    forward = correct_spurious_heads(*given, located(), how="forward", n_random=2)
    for found, least in ((direct, 0.15), (forward, 0.35)):
        frame = found.to_pandas().set_index(["group", "when"])
        gain = frame.loc[("worst group", "gain")]
        assert gain["low"] > least
        assert gain["score"] > gain["null"] + 0.2
        assert frame.loc[("worst group", "before"), "score"] < 0.6
        assert found.interval(0.8)["low"].iloc[-1] > gain["low"]
    assert forward.to_pandas().iloc[-2]["score"] > 0.85
    both = correct_spurious_heads(*given, located(), repair="both", n_random=0)
    assert both.target
    assert float(both.score[-2]) >= float(direct.score[-2])
    projected = correct_spurious_heads(*given, located(), repair="projection", n_random=0)
    assert projected.spurious == ()
    assert projected.after.mean() > projected.before.mean()


def test_direct_correction_by_hand() -> None:
    """The directions are those of four logits: their differences span what sums to zero."""
    images = drawn(101).part(slice(0, 24))
    model = shapes("shapes-spurious")
    held = cued_images(model, images, images.labels, images.cues, None, 64)
    replaced, added = (held.parts.heads[:, held.parts.find(x)] for x in (PLANTED, "L2H2"))
    by_hand = held.parts.output - replaced + replaced.mean(0)
    by_hand = by_hand + added - added.mean(1, keepdims=True)
    np.testing.assert_allclose(_direct(held, [PLANTED], ["L2H2"]), by_hand, atol=1e-10)


def test_the_gain_is_drawn_on_the_same_images_before_and_after() -> None:
    right = np.random.default_rng(0).random(40) < 0.5
    group, none = ("a", "b") * 20, np.zeros((0, 40), dtype=bool)
    frame = accuracy_rows(group, right, right, none, {}).to_pandas()
    assert frame["high"].sub(frame["low"]).iloc[-3:].gt(0.1).tolist() == [True, True, False]
    assert frame.iloc[-1][["low", "high"]].tolist() == [0, 0]


def test_rows_of_groups_and_of_the_worst_one_by_hand() -> None:
    group = ("a", "a", "b", "b", "b", "b")
    before, after = (np.array(x, dtype=bool) for x in ([1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 1, 0]))
    random = np.array([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]], dtype=bool)
    frame = accuracy_rows(group, before, after, random, {}).to_pandas()
    assert frame["group"].tolist() == ["a", "a", "b", "b", *[WORST] * 3]
    assert frame["score"].tolist() == [1, 0.5, 0.25, 0.75, 0.25, 0.5, 0.25]
    nan = float("nan")  # the worst group of the draws is right in 0.5 and in 0
    np.testing.assert_array_equal(frame["null"], [nan, 0.5, nan, 0.75, nan, 0.25, 0])
    assert frame["n"].tolist() == [2, 2, 4, 4, 6, 6, 6]


def test_mean_in_the_forward_pass_is_that_of_the_images() -> None:
    """With one image per group the mean is the image's own output, so nothing changes."""
    images = drawn().part(slice(0, 1))
    given = (shapes("shapes-spurious"), images, images.labels, images.cues)
    found = correct_spurious_heads(*given, [PLANTED], how="forward", n_random=0)
    np.testing.assert_array_equal(found.before, found.after)


def test_bad_input() -> None:
    images, model = drawn(), shapes("shapes-spurious")
    given = (model, images, images.labels, images.cues)
    with pytest.raises(OptionError, match="located on the same images"):
        correct_spurious_heads(*given, located())
    with pytest.raises(OptionError, match="conflicts with their class"):
        locate_spurious_heads(model, images, images.labels, images.labels)
    with pytest.raises(OptionError, match="give one cue for each of the 240"):
        locate_spurious_heads(model, images, images.labels, images.cues[:3])
    with pytest.raises(OptionError, match="outside -1 to 3"):
        locate_spurious_heads(model, images, images.labels, images.cues + 4)
    with pytest.raises(OptionError, match="no head L9H9"):
        correct_spurious_heads(*given, ["L9H9"])
    with pytest.raises(OptionError, match="use how='direct'"):
        correct_spurious_heads(*given, [PLANTED], repair="both", how="forward")
    with pytest.raises(OptionError, match="known: both, mean"):
        correct_spurious_heads(*given, [PLANTED], repair="zero")  # type: ignore[arg-type]


def test_the_interval_of_the_worst_of_equal_groups_holds_their_accuracy() -> None:
    """The lowest of eight noisy shares is too low, and a bootstrap of it lower still."""
    rng, held = np.random.default_rng(0), []
    group = tuple(str(i) for i in range(8) for _ in range(20))
    for _ in range(60):
        right = rng.random(160) < 0.8
        found = accuracy_rows(group, right, right, np.zeros((0, 160), bool), {})
        low, high = bounds_of_worst(found)["after"]
        assert low <= worst_accuracy(group, right) <= high
        held.append(low <= 0.8 <= high)
    assert np.mean(held) >= 0.9


def test_rows_are_tested_against_their_null_on_the_same_images() -> None:
    rng = np.random.default_rng(1)
    null, values = rng.normal(size=(2, 400, 12))
    found = paired_columns(("a",) * 200 + ("b",) * 200, values, null)
    assert np.mean(np.array(found["p"]) < 0.05) == pytest.approx(0.05, abs=0.04)
    assert min(found["p_holm"]) > 0.05
    shifted = paired_columns(("a",), values[:1] + 3, null[:1])
    assert shifted["p"][0] < 0.01
