"""Sentences of long texts: planted links are found, random heads find none, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kurtosis
from syntax.made import word_tokenizer

import interp
from interp import planted
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.head import Head
from interp.core.rank_statistics import auroc
from interp.core.result_rows import ResultRows
from interp.text.chains import (
    Chain,
    linked_chains,
    receiver_heads,
    rollout_effects,
    sentence_attention,
    suppression_effects,
    thought_anchors,
)
from interp.text.chains.anchors import _others, _strongest
from interp.text.chains.anchors_result import Anchors
from interp.text.chains.hidden import answer_log_odds, hide_spans
from interp.text.chains.receivers import largest_receivers, received_scores, receiver_rows
from interp.text.chains.rollouts import Rollouts, _answer_probability, _mean_embedding
from interp.text.chains.sentences import sentence_spans
from interp.text.chains.vertical import vertical_scores


@pytest.fixture(scope="module")
def roomy():
    """Planted induction with so many tokens that filler need not repeat, and its head."""
    built = planted.induction(vocab=112)
    [copier] = built.roles["induction"]
    return interp.load(built.model, name="roomy"), Head(*copier, "decoder")


@pytest.fixture(scope="module")
def linked(roomy) -> list[Chain]:
    return linked_chains(roomy[0], n_chains=3, n_sentences=16, length=6, anchors=1, links=3)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One. Two? Three!", ["One. ", "Two? ", "Three!"]),
        ("Pi is 3.14 today. Yes.", ["Pi is 3.14 today. ", "Yes."]),
        ("Dr. A. Smith left, e.g. now. End", ["Dr. A. Smith left, e.g. now. ", "End"]),
        ('He said "no." Then he left.', ['He said "no." ', "Then he left."]),
        ("A heading\n\n1. First step\n2. Second", ["A heading\n\n", "1. First step\n2. Second"]),
        ("Wait... So? ... !", ["Wait... ", "So? ... !"]),
        ("no end", ["no end"]),
        ("\u4e00\u3002\u4e8c\u3002", ["\u4e00\u3002", "\u4e8c\u3002"]),
    ],
)
def test_sentences_cover_the_text(text, parts) -> None:
    assert [text[a:b] for a, b in sentence_spans(text)] == parts


def test_text_becomes_spans_of_tokens() -> None:
    model = interp.load("planted:induction", tokenizer=word_tokenizer(["a", "b", "c", ".", "x"]))
    text = "a b . c x ."
    chain = Chain.of_text(model, text, spans=[(0, 5), (5, 11)], question="x", answer="a")
    assert chain.texts == ("a b .", "c x .")
    assert [b - a for a, b in chain.spans] == [3, 3]
    assert chain.prompt[chain.spans[1][0]] == model.tokenizer.convert_tokens_to_ids("c")
    assert len(chain.question) == len(chain.answer) == 1
    with pytest.raises(PromptError, match="has no token of its own"):
        Chain.of_text(model, "a b c", spans=[(0, 1), (1, 2), (2, 5)])
    with pytest.raises(PromptError, match="has no tokenizer"):
        Chain.of_text(interp.load("planted:noise"), text)


def test_a_tokenizer_without_offsets_gives_the_same_spans() -> None:
    class Slow:
        """The same tokenizer, without offsets."""

        def __init__(self, inner) -> None:
            self.inner, self.is_fast = inner, False

        def __call__(self, text, **options):
            return self.inner(text, **options)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    model = interp.load("planted:induction", tokenizer=word_tokenizer(["a", "b", "c", "."]))
    fast = Chain.of_text(model, "a b. c a b. c")
    model.tokenizer = Slow(model.tokenizer)
    slow = Chain.of_text(model, "a b. c a b. c")
    assert (slow.ids, slow.spans) == (fast.ids, fast.spans)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gptj"])
def test_streamed_means_equal_those_of_stored_patterns(loaded, family) -> None:
    model = loaded(family)
    ids = tuple(np.random.default_rng(0).integers(1, model.d_vocab, 18).tolist())
    spans = ((1, 4), (4, 9), (10, 18))
    found = sentence_attention(model, Chain(ids, spans, ("a", "b", "c")))
    cache = model.capture([ids], ["pattern"])
    patterns = torch.cat([cache["pattern", site.layer][0] for site in model.sites])
    for i, (a, b) in enumerate(spans):
        for j, (c, d) in enumerate(spans):
            expected = float(patterns[:, a:b, c:d].double().mean())
            assert found[i, j] == pytest.approx(expected, abs=1e-6)


def test_vertical_scores_by_hand() -> None:
    pairs = np.arange(25.0).reshape(5, 5)
    found = vertical_scores(pairs, 2)
    assert found[:3].tolist() == [(10 + 15 + 20) / 3, (16 + 21) / 2, 22]
    assert np.isnan(found[3:]).all()
    with pytest.raises(PromptError, match="5 sentences"):
        vertical_scores(pairs, 4)


def test_the_planted_head_is_the_receiver(roomy, linked) -> None:
    model, copier = roomy
    found = receiver_heads(model, linked)
    assert largest_receivers(found, 1) == (copier,)
    frame = found.to_pandas().set_index(["layer", "head"])
    others = frame.drop(index=(copier.layer, copier.head))["score"]
    assert frame.loc[(copier.layer, copier.head), "score"] > 5 > others.max() + 2
    for chain in linked:
        scores = received_scores(found, chain.name, [copier])
        assert np.nanargmax(scores) == chain.depends[0][1]
    with pytest.raises(UnknownName, match="chain"):
        received_scores(found, "none")


def test_kurtosis_and_its_null_are_those_of_the_received_attention(roomy, linked) -> None:
    model, _ = roomy
    found = receiver_heads(model, linked, seed=3)
    for chain in range(len(linked)):
        mine = found.vertical[:, found.of_chain == chain]
        want = kurtosis(mine, axis=1, nan_policy="omit")
        np.testing.assert_allclose(found.per_prompt[:, chain], want, atol=1e-9)
    mixed = receiver_heads(model, [chain.shuffled(3) for chain in linked], null=False)
    np.testing.assert_array_equal(found.null_kurtosis, mixed.per_prompt)
    assert (found.null_kurtosis != found.per_prompt).any()


def test_heads_of_a_chain_are_chosen_on_the_others() -> None:
    values = np.array([[9.0, 0.0, np.nan], [1.0, 2.0, 4.0], [0.0, 5.0, 0.0]])
    names = a, b, c = tuple(Head(0, i) for i in range(3))

    def found(scores: np.ndarray) -> ResultRows:
        chains = tuple("xyz")[: scores.shape[1]]
        nothing = np.zeros((3, 1))
        return receiver_rows(names, scores, scores, nothing, np.zeros(1, int), (), chains, {})

    assert _others(found(values), 0, 2) == (b, c)
    assert _others(found(values), 1, 2) == (a, b)
    assert _others(found(values[:, :1]), 0, 1) == (a,)


def test_the_strongest_earlier_sentence_is_far_enough() -> None:
    pairs = np.array([[9, 0, 0, 0], [8, 9, 0, 0], [1, 7, 9, 0], [2, 3, 7, 9.0]])
    assert _strongest(pairs, 2).tolist() == [-1, -1, 0, 1]


def test_log_odds_of_an_answer_by_hand() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]])
    want = 3 - np.log(np.exp(1) + np.exp(2)) + 0 - np.log(1 + np.exp(1))
    assert answer_log_odds(logits, [2, 0]) == pytest.approx(want, abs=1e-6)


def test_divergences_of_a_hidden_sentence_by_hand(loaded) -> None:
    """From the model's own predictions, over the rows that predict a later sentence."""
    model = loaded("llama")
    ids = tuple(np.random.default_rng(2).integers(1, model.d_vocab, 16).tolist())
    chain = Chain(ids, ((0, 4), (4, 9), (10, 16)), ("a", "b", "c"))
    found = suppression_effects(model, chain, [0], temperature=2.0)
    with torch.no_grad(), model.edited(hide_spans(model, [[(0, 4)]])):
        new = (model.run([ids])[0].double() / 2).log_softmax(-1)
    with torch.no_grad():
        old = (model.run([ids])[0].double() / 2).log_softmax(-1)
    each = (old.exp() * (old - new)).sum(-1)
    for later, rows in ((1, slice(4, 8)), (2, slice(9, 15))):  # row 3 is of the hidden sentence
        want = float(each[rows].mean())
        assert found.divergence[0, later] == pytest.approx(want, rel=1e-3)
    assert np.isnan(found.divergence[0, 0])


def test_effects_of_rollouts_by_hand() -> None:
    p = np.array([[0.1, 0.3, 0.8], [0.2, 0.4, 0.9], [0.9, 0.9, 0.9]])
    different = np.array([[True, False, True], [False, False, True]])
    found = Rollouts(p, different)
    assert found.resampling[:, 0].tolist() == pytest.approx([0.1, 0.4])
    assert found.counterfactual[:, 0].tolist() == pytest.approx([0.5 - 0.45, 0.9 - 0.9])
    error = np.sqrt(p[1].var(ddof=1) / 3 + p[0, [0, 2]].var(ddof=1) / 2)
    assert found.counterfactual[0, 1] == pytest.approx(error)
    assert np.isnan(found.counterfactual[1, 1])  # one rollout has no error


def test_rollouts_differ_where_their_sentence_is_unlike(planted_induction) -> None:
    chain = linked_chains(
        planted_induction, n_chains=1, n_sentences=5, length=4, anchors=1, links=1
    )[0]
    seen = []

    def embed(parts) -> np.ndarray:
        same = [list(part) == list(parts[0]) for part in parts]
        seen.append([not x for x in same[1:]])
        return np.array([[1.0, 0.0] if x else [0.0, 1.0] for x in same])

    found = rollout_effects(planted_induction, chain, n_rollouts=3, max_new_tokens=4, embed=embed)
    assert found.different.tolist() == seen
    assert found.different.any()


def test_sentences_are_compared_without_what_all_tokens_share(planted_induction) -> None:
    embed = _mean_embedding(planted_induction)
    whole = embed([range(planted_induction.d_vocab)])
    assert np.abs(whole).max() < 1e-6 < np.abs(embed([[3]])).max()


def test_the_probability_of_an_answer_is_that_of_all_its_tokens(loaded) -> None:
    model = loaded("llama")
    chain = Chain((1, 2, 3), ((0, 3),), ("a",), (4,), (5, 6))
    [found] = _answer_probability(model, chain, torch.tensor([[7, 8, 9]]))
    with torch.no_grad():
        p = model.run([(7, 8, 9, 4, 5, 6)])[0].double().softmax(-1)
    assert found == pytest.approx(float(p[3, 5] * p[4, 6]), rel=1e-5)


def test_suppression_equals_a_mask_given_to_the_model(loaded) -> None:
    model = loaded("llama")
    ids = np.random.default_rng(1).integers(1, model.d_vocab, 16).tolist()
    mask = torch.ones(16, 16).tril().bool()
    mask[4:, :4] = False  # the first sentence: its tokens see themselves, later ones do not
    mask[9:, 6:9] = False
    given = torch.where(mask, 0.0, torch.finfo(torch.float32).min)[None, None]
    with torch.no_grad():
        expected = model.module(input_ids=torch.tensor([ids]), attention_mask=given).logits
        with model.edited(hide_spans(model, [[(0, 4), (6, 9)]])):
            found = model.run([tuple(ids)])
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


def test_suppression_finds_planted_links_and_chance_elsewhere(roomy, linked) -> None:
    model, _ = roomy
    scores, truth = [], []
    for chain in linked:
        found = suppression_effects(model, chain)
        assert np.flatnonzero(found.answer > 1).tolist() == list(chain.sources)
        links = np.zeros_like(found.divergence, dtype=bool)
        for later, earlier in chain.depends:
            links[earlier, later] = True
        known = np.isfinite(found.divergence)
        scores.append(found.divergence[known])
        truth.append(links[known])
    assert auroc(np.concatenate(scores), np.concatenate(truth)) > 0.98
    rng = np.random.default_rng(0)
    null = [
        auroc(np.concatenate(scores), rng.permutation(np.concatenate(truth))) for _ in range(50)
    ]
    assert abs(np.mean(null) - 0.5) < 0.06


def test_random_heads_have_no_anchors() -> None:
    model = interp.load("planted:noise")
    for chain in linked_chains(model, n_chains=2, n_sentences=12, length=6, anchors=1, links=3):
        found = suppression_effects(model, chain)
        assert np.abs(found.answer).max() < 0.5


@pytest.fixture(scope="module")
def anchors(planted_induction):
    few = linked_chains(planted_induction, n_chains=2, n_sentences=8, length=6, anchors=1, links=3)
    return few, thought_anchors(
        planted_induction, few, n_rollouts=6, min_distance=2, n_heads=2, max_new_tokens=12
    )


def test_both_interventions_find_the_source_and_agree(anchors) -> None:
    chains, found = anchors
    for number, chain in enumerate(chains):
        mine = found.of_chain == number
        for name in ("suppression_answer", "resampling"):
            assert np.nanargmax(found.values[name][mine]) == chain.sources[0], name
        raised = found.values["resampling"][mine][chain.sources[0]]
        assert raised > 0.5
    table = found.agreement(n_boot=200).set_index(["measure", "other"])
    row = table.loc[("suppression_answer", "resampling")]
    assert row["spearman"] > 0.2 > abs(row["null"]) * 2
    assert row["low"] <= row["spearman"] <= row["high"]
    assert found.provenance["options"]["heads_chosen_on"] == "the other chains"


def test_the_page_escapes_the_sentences(anchors, tmp_path) -> None:
    from dataclasses import replace

    _, found = anchors
    texts = ("<script>alert(1)</script>", *found.texts[1:])
    replace(found, texts=texts).save(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "http" not in page.split("</style>")[1].replace("http-equiv", "")


def test_bad_input_of_chains(planted_induction, anchors) -> None:
    chains, _ = anchors
    with pytest.raises(PromptError, match="context of 1,024"):
        receiver_heads(planted_induction, [Chain((1,) * 1100, ((0, 500), (500, 1100)), ("a", "b"))])
    with pytest.raises(PromptError, match="spans tokens 2 to 9"):
        Chain((1, 2, 3), ((0, 2), (2, 9)), ("a", "b"))
    with pytest.raises(PromptError, match="no sentences"):
        Chain((1, 2, 3), (), ())
    with pytest.raises(OptionError, match="no sentence 99"):
        suppression_effects(planted_induction, chains[0], [99])
    plain = Chain(chains[0].ids, chains[0].spans, chains[0].texts)
    with pytest.raises(OptionError, match="has no answer"):
        rollout_effects(planted_induction, plain)
    with pytest.raises(UnknownName, match="way to find anchors"):
        thought_anchors(planted_induction, chains, methods=["tea"])
    with pytest.raises(OptionError, match="same name"):
        receiver_heads(planted_induction, [plain, plain], min_distance=2)
    with pytest.raises(OptionError, match="one more"):
        linked_chains(planted_induction, n_sentences=4)


def test_tokens_are_sampled_with_the_probabilities_of_the_model(loaded) -> None:
    from interp.text.chains.rollouts import sampled_continuations

    model, ids = loaded("llama"), (0, 5, 9, 7)
    logits = model.run([ids])[0, -1].double().detach()
    sharp = float(logits.std()) / 2
    expected = (logits / sharp).softmax(-1)
    assert expected.max() > 3 * logits.softmax(-1).max()  # the temperature matters
    generator = torch.Generator().manual_seed(0)
    drawn = sampled_continuations(model, ids, 1, 20_000, sharp, generator)[:, -1]
    share = torch.bincount(drawn, minlength=len(expected)) / len(drawn)
    error = (expected * (1 - expected) / len(drawn)).sqrt()
    assert ((share - expected).abs() < 5 * error + 1e-12).all()


def made_agreement(shared: float, seed: int) -> float:
    """p of two measures of 3 chains that fall along the text and may share something else."""
    rng, index = np.random.default_rng(seed), np.tile(np.arange(16), 3)
    common, one, other = rng.normal(size=(3, 48))
    one, other = (x + shared * common - index / 6 for x in (one, other))
    nothing = np.full(48, -1)
    found = Anchors(
        ("a", "b", "c"),
        np.repeat(np.arange(3), 16),
        index,
        ("",) * 48,
        {"receiver": one, "suppression": other},
        {},
        nothing,
        nothing,
        ((),) * 3,
    )
    return float(found.agreement(n_boot=199, seed=seed)["p"].iloc[0])


def test_a_common_fall_along_the_text_is_no_agreement() -> None:
    assert np.mean([made_agreement(0, seed) < 0.05 for seed in range(40)]) <= 0.15
    assert np.mean([made_agreement(2, seed) < 0.05 for seed in range(10)]) >= 0.9


def test_measures_that_only_fall_along_the_text_do_not_agree() -> None:
    """Without its trend nothing is left of a measure whose ranks are the order of the sentences."""
    index = np.arange(12)
    rng, nothing = np.random.default_rng(0), np.full(12, -1)
    falling = {"receiver": -index.astype(float), "suppression": -index + rng.normal(size=12)}
    found = Anchors(
        ("a",), np.zeros(12, int), index, ("",) * 12, falling, {}, nothing, nothing, ((),)
    ).agreement(n_boot=99)
    assert found["spearman"].iloc[0] > 0.8
    assert found["p"].iloc[0] == 1
