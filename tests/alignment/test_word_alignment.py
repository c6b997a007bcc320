"""Alignment of the bundled model that reorders: exact heads, nulls, directions and pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.alignment import (
    SentencePair,
    both_directions,
    made_sentence_pairs,
    pair_alignment,
    rank_agreement,
    translation_heads,
    word_alignment,
)
from interp.alignment.directions import direction_rows
from interp.alignment.links import drawn_error_rates
from interp.alignment.result import HeadAlignments, best_of_layers
from interp.alignment.translation import (
    confidences,
    position_variances,
    translation_rows,
)
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.rank_statistics import spearman
from interp.core.statistics import percentile_interval
from interp.draw.figure import svg


@pytest.fixture(scope="module")
def reorder() -> interp.Model:
    return interp.load("bundled:reorder")


@pytest.fixture(scope="module")
def reordered(reorder) -> HeadAlignments:
    return word_alignment(reorder, made_sentence_pairs(48))


def test_the_head_that_aligns_is_found_on_held_out_pairs(reordered) -> None:
    best = reordered.best_head()
    row = best.to_pandas().iloc[0]
    assert (row["layer"], row["rows"]) == (1, "emits")
    assert row["score"] == row["high"] == 0.0  # every link, on pairs that chose no head
    assert row["precision"] == row["recall"] == 1.0
    assert row["p_holm"] < 0.02
    assert 0.8 < row["null"] < 0.95  # one of 4 to 10 source words by chance
    assert row["n"] == len(reordered.judged) == 24


def test_other_rows_do_not_align(reordered) -> None:
    """The row that is fed a word attends to the next word; layer 0 does not align either."""
    frame = reordered.to_pandas()
    fed = frame[(frame.rows == "fed") & (frame.layer == 1)]
    assert (fed["score"] > 0.9).all()
    assert (fed["p"] > 0.5).all()
    assert (frame[frame.layer == 0]["score"] > 0.4).all()
    assert frame["best_of_layer"].sum() == 2
    assert set(reordered.best().to_pandas()["layer"]) == {0, 1}


def test_links_are_those_of_the_modules_own_cross_attention(reorder, reordered) -> None:
    pairs = made_sentence_pairs(48)
    eager = type(reorder.module)(reorder.module.config).eval()
    eager.load_state_dict(reorder.module.state_dict())
    eager.set_attn_implementation("eager")
    for at, i in enumerate(reordered.judged[:6]):
        source, target = (
            torch.tensor([reorder.tokenizer(text)["input_ids"]])
            for text in (pairs[i].source, pairs[i].target)
        )
        read = torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1)
        with torch.no_grad():
            out = eager(input_ids=source, decoder_input_ids=read, output_attentions=True)
        own = torch.cat(out.cross_attentions, 1)[0, :, :-1, :-1].argmax(-1).numpy()  # no </s>
        emits = reordered.links[: len(own), at, : own.shape[1]]
        np.testing.assert_array_equal(emits, own)


def test_ids_are_aligned_as_the_text_is(reorder) -> None:
    """Ids hold the end token, which is no word: neither coverage nor links count it."""
    texts = made_sentence_pairs(8)
    ids = [
        SentencePair(
            *(tuple(reorder.tokenizer(x)["input_ids"]) for x in (p.source, p.target)), p.sure
        )
        for p in texts
    ]
    one, other = (word_alignment(reorder, pairs, n_random=3) for pairs in (texts, ids))
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_array_equal(one.steps, other.steps)


def test_batches_and_nulls(reorder) -> None:
    pairs = made_sentence_pairs(12)
    one = word_alignment(reorder, pairs, batch_size=1, n_random=20, rows="emits")
    many = word_alignment(reorder, pairs, batch_size=12, n_random=20, rows="emits")
    np.testing.assert_array_equal(one.links, many.links)
    np.testing.assert_allclose(one.null, many.null)
    other = word_alignment(reorder, pairs, null="other", n_random=20, rows="emits")
    assert other.best_head().score[0] == 0.0
    assert other.best_head().null[0] > 0.6
    assert "another sentence" in repr(other)


def test_shuffled_gold_is_at_chance(reorder) -> None:
    """Where the gold itself is of random words, no head is better than the null."""
    rng = np.random.default_rng(3)
    pairs = [
        SentencePair(
            p.source,
            p.target,
            frozenset(
                (int(rng.integers(len(p.source.split()))), t) for t in range(len(p.target.split()))
            ),
        )
        for p in made_sentence_pairs(48)
    ]
    found = word_alignment(reorder, pairs, n_random=200).to_pandas()
    assert (found["p_holm"] > 0.05).all()
    assert (found["low"] - 0.05 <= found["null"]).all()
    assert (found["null"] <= found["high"] + 0.05).all()


def test_intervals_of_few_sentences_hold_the_rate_of_many() -> None:
    rng, held, plain = np.random.default_rng(0), [], []
    for _ in range(150):
        hits = rng.binomial(6, rng.beta(2, 2, size=6))
        counts = np.stack([np.full(6, 6), np.full(6, 6), hits, hits], -1)[None]
        found = direction_rows(counts, np.zeros(1), 1.0, {}, ["one"])
        low, high = found.bounds()[0]
        ends = percentile_interval(drawn_error_rates(counts)[:, 0])
        held.append(low <= 0.5 <= high)
        plain.append(ends[0] <= 0.5 <= ends[1])
    assert np.mean(held) > 0.9 > np.mean(plain)
    alone = direction_rows(counts[:, :1], np.zeros(1), 1.0, {}, ["one"])
    assert np.isnan(alone.bounds()).all()


def test_what_chooses_does_not_judge(reorder) -> None:
    error = np.array([0.4, 0.2, np.nan, 0.2, 0.9])
    assert best_of_layers(error, [0, 0, 1, 1, 1]).tolist() == [False, True, False, True, False]
    assert best_of_layers(np.array([np.nan, np.nan]), [0, 0]).sum() == 1
    found = word_alignment(reorder, made_sentence_pairs(10), select=0.7, n_random=5)
    assert found.counts.shape[1] == 3
    assert found.chosen_counts.shape[1] == 7


def test_two_directions(reordered) -> None:
    """The backward result is made by hand: all gold links but one wrong in every sentence."""
    gold = reordered.gold
    turned = tuple(np.array(sorted(g[:, [1, 0, 2]].tolist())) for g in gold)
    longest = max(int(g[:, 0].max()) + 1 for g in gold)
    links = np.full((1, len(gold), longest), -1)
    for at, g in enumerate(gold):
        for source, target, _ in g.tolist():
            links[0, at, source] = target
        links[0, at, g[0, 0]] = g[-1, 1]  # the first source word gets the last one's target
    part = reordered.top(1)
    backward = HeadAlignments(
        part.of,
        part.rows,
        part.counts,
        part.chosen_counts,
        part.steps,
        links,
        turned,
        part.judged,
        part.null,
        part.p,
        part.p_holm,
        part.best_of_layer,
        "by hand",
        part.provenance,
    )
    found = both_directions(reordered, backward)
    rows = found.to_pandas().set_index("alignment")
    sizes = np.array([len(g) for g in gold])
    assert rows.loc["forward", "score"] == 0.0
    assert rows.loc["intersection", "precision"] == 1.0
    assert rows.loc["intersection", "recall"] == pytest.approx(1 - len(gold) / sizes.sum())
    assert rows.loc["union", "recall"] == 1.0
    assert rows.loc["union", "precision"] == pytest.approx(sizes.sum() / (sizes + 1).sum())
    assert found.agreement == pytest.approx((sizes - 1).sum() / sizes.sum())
    with pytest.raises(OptionError, match="opposite directions"):
        both_directions(reordered, reordered)


def test_pictures(reorder) -> None:
    pair = made_sentence_pairs(8)[1]
    right = pair_alignment(reorder, pair, "L1H0")
    assert right.links == pair.sure
    assert set(right.kinds().values()) == {"sure"}
    wrong = pair_alignment(reorder, pair, (0, 1))
    assert {"wrong", "missed"} <= set(wrong.kinds().values())
    for one in (right, wrong):
        for figure in (one.matrix(), one.lines()):
            drawn = svg(figure)
            assert all(word in drawn for word in (*one.source, *one.target))
    assert len(right.matrix().data[1].x) == len(pair.sure)
    bare = pair_alignment(reorder, (pair.source, pair.target), "L1H0")
    assert set(bare.kinds().values()) == {"found"}
    with pytest.raises(OptionError, match="no cross-attention head L2H0"):
        pair_alignment(reorder, pair, "L2H0")


def test_ablation_beside_attention(reorder) -> None:
    """Both heads of layer 1 align perfectly, but one of them is hardly needed."""
    pairs = made_sentence_pairs(16)
    found = translation_heads(reorder, pairs, null=False)
    rows = found.to_pandas().set_index(["stack", "layer", "head"])
    assert rows.loc[("cross", 1, 0), "score"] < 0.1 < rows.loc[("cross", 1, 1), "score"]
    ids = [[reorder.tokenizer(x)["input_ids"] for x in (p.source, p.target)] for p in pairs]
    for i, (source, target) in enumerate(ids[:3]):
        inputs = {
            "input_ids": torch.tensor([source]),
            "decoder_input_ids": torch.tensor([[0, *target[:-1]]]),
        }
        losses = []
        for edits in ((), [interp.zero("L1H1", stack="cross")]):
            with torch.no_grad():
                logits = reorder.run(inputs, edits)[0, :-1].double()
            wanted = torch.tensor(target[:-1])
            losses.append(float(torch.nn.functional.cross_entropy(logits, wanted)))
        at = found.heads().index(Head(1, 1, "cross"))
        assert found.per_prompt[at, i] == pytest.approx(losses[1] - losses[0], abs=1e-4)
        cross = reorder.capture(inputs, ["pattern"])["pattern", 1, "cross"][0, 1].double()
        want = float(cross[:, :-1].amax(-1).mean())  # without </s>
        assert found.each_confidence[at, i] == pytest.approx(want, abs=1e-6)
    ranks = rank_agreement(found)
    assert set(ranks["stack"]) == {"all", "encoder", "decoder", "cross"}
    assert ranks["spearman"].between(-1, 1).all()
    some = translation_heads(reorder, pairs[:4], null=False, stack="cross")
    assert {h.stack for h in some.heads()} == {"cross"}


def test_statistics_by_hand() -> None:
    rows = torch.tensor([[[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]], dtype=torch.float64)
    assert position_variances(rows).tolist() == [0.5]  # variances 1 and 0
    assert confidences(rows, []).tolist() == [0.75]
    assert confidences(rows, [1]).tolist() == [0.25]
    uniform = torch.full((1, 2, 6), 1 / 6, dtype=torch.float64)
    assert position_variances(uniform)[0] == pytest.approx((6**2 - 1) / 12)


def test_wrong_calls(reorder) -> None:
    pairs = made_sentence_pairs(6)
    bare = [(p.source, p.target) for p in pairs]
    for call, error, message in (
        (lambda: word_alignment(reorder, bare), PromptError, "pair 0 has no gold alignment"),
        (lambda: word_alignment(reorder, pairs[:3]), PromptError, "four or more"),
        (lambda: word_alignment(reorder, pairs, select=1.0), OptionError, "between 0 and 1"),
        (
            lambda: word_alignment(reorder, pairs, null="none"),
            OptionError,
            "known: other, shuffled",
        ),
        (lambda: word_alignment("bundled:induction", pairs), OptionError, "no cross attention"),
        (lambda: translation_heads(reorder, [((5, 6, 3), (3,))]), PromptError, "only an end token"),
    ):
        with pytest.raises(error, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize(("spread", "known"), [(1.0, True), (0.05, False)])
def test_ranks_of_heads_that_hardly_differ_are_not_known(spread, known) -> None:
    """Noise of 16 pairs moves a correlation of 0.6 towards 0, and that of bootstrap draws twice."""
    held = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=(2, 10)) * spread
        truth[1] = 0.6 * truth[0] + 0.8 * truth[1]
        values = truth[:, :, None] + rng.normal(size=(2, 10, 16))
        heads = tuple(Head(0, h, "cross") for h in range(10))
        found = translation_rows(heads, *values, np.ones((10, 16)), np.full(10, np.nan), {})
        row = rank_agreement(found).set_index("statistic").loc["confidence"]
        held.append(row["low"] <= spearman(truth)[0, 1] <= row["high"])
        assert (row["reliability"] > 0.5) == known
        assert (row["high"] - row["low"] == 2) == (not known)
        assert row["pairs"] == 16
    assert np.mean(held) >= 0.75
