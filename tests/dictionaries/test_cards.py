"""Cards of features against features that are written by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError, PromptError
from interp.core.tokens import words
from interp.dictionaries import feature_cards, train_dictionary
from interp.dictionaries.card_result import FeatureCard, FeatureCards, FeatureExample
from interp.dictionaries.cards import _shares_of
from interp.dictionaries.dictionary import Dictionary, DictionaryMismatch
from interp.model.locate.weights import embeddings

IDS = [[0, 7, 8, 9, 7], [0, 9, 7, 7], [0, 5, 6]]


def hand_made(model: interp.Model, layer: int = 1) -> Dictionary:
    """Feature f reads the first entry of head f above a threshold and writes to that head alone.

    Feature 2 is silent, and its row is as long in every head.
    """
    site = model.site(layer)
    wide = site.n_heads * site.d_v
    read, written = torch.zeros(wide, 3), torch.zeros(3, wide)
    generator = torch.Generator().manual_seed(0)
    for f in range(2):
        read[f * site.d_v, f] = 1
        written[f, f * site.d_v : (f + 1) * site.d_v] = torch.randn(site.d_v, generator=generator)
    written[2] = 1
    values = [np.sort(np.concatenate(firsts(model, f))) for f in range(2)]
    middle = [float(v[4] + v[5]) / 2 for v in values]  # 4 of the 9 positions are above
    bias = torch.tensor([-middle[0], -middle[1], -1e9])
    return Dictionary(
        "standard", read, written, bias, torch.zeros(wide), "z", layer, n_heads=site.n_heads
    )


def firsts(model: interp.Model, head: int) -> list[np.ndarray]:
    """First entry of a head's z in layer 1 of every prompt, without the first position."""
    return [model.capture([ids], ["z"], layers=1)["z", 1][0, head, 1:, 0].numpy() for ids in IDS]


def test_codes_density_and_examples_are_those_of_the_activations(bundled_induction) -> None:
    model = bundled_induction
    dictionary = hand_made(model)
    cards = feature_cards(model, dictionary, IDS, [0, 1, 2], k=3, tokens=1)
    frame = cards.to_pandas().set_index(["feature", "metric"])
    for f in (0, 1):
        codes = [np.maximum(z + float(dictionary.b_enc[f]), 0) for z in firsts(model, f)]
        means = [c[c > 0].mean() for c in codes if (c > 0).any()]
        row = frame.loc[(f, "activation")]
        assert row["score"] == pytest.approx(np.mean(means), rel=1e-4)
        assert row["n"] == len(means)
        if len(means) > 1:
            sem = np.std(means, ddof=1) / math.sqrt(len(means))
            assert row["sem"] == pytest.approx(sem, rel=1e-3)
        shares = [(c > 0).mean() for c in codes]
        assert frame.loc[(f, "density"), "score"] == pytest.approx(np.mean(shares))
        ranked = sorted(
            ((c, p, i + 1) for p, row in enumerate(codes) for i, c in enumerate(row) if c > 0),
            reverse=True,
        )[:3]
        assert sum(int((c > 0).sum()) for c in codes) == 4
        found = cards.cards[f].examples
        assert [(x.prompt, x.position) for x in found] == [(p, i) for _, p, i in ranked]
        np.testing.assert_allclose([x.activation for x in found], [c for c, *_ in ranked], 1e-4)
        for x in found:
            around = IDS[x.prompt][max(x.position - 1, 0) : x.position + 2]
            assert x.tokens == words(model, around)
            assert x.start == x.position - 1
            assert x.codes[x.position - x.start] == x.activation
            assert math.isnan(x.codes[0]) == (x.start == 0)
    silent = cards.cards[2]
    assert silent.examples == ()
    assert frame.loc[(2, "density"), "score"] == 0
    assert math.isnan(frame.loc[(2, "activation"), "score"])
    by_default = feature_cards(model, hand_made(model), IDS)
    assert 2 not in [c.feature for c in by_default.cards]
    assert len(feature_cards(model, hand_made(model), IDS, n_features=1).cards) == 1


def test_shares_of_an_example_are_of_the_input_that_the_encoder_reads(bundled_induction) -> None:
    site = bundled_induction.site(1)
    draw = torch.Generator().manual_seed(3)
    d = hand_made(bundled_induction)
    d = replace(
        d,
        W_enc=torch.randn(d.W_enc.shape, generator=draw),
        b_dec=torch.randn(d.b_dec.shape, generator=draw),
    )
    x = torch.randn(2, len(d.b_dec), generator=draw)
    parts = ((x - d.b_dec) * d.W_enc[:, 1]).unflatten(1, (site.n_heads, -1)).sum(-1).abs()
    want = (parts / parts.sum(1, keepdim=True)).numpy()
    np.testing.assert_allclose(_shares_of(d, x, 1, site), want, rtol=1e-5)


def test_batches_and_left_padding_change_nothing(bundled_induction) -> None:
    model = bundled_induction
    d = hand_made(model)
    one = feature_cards(model, d, IDS, [0, 1], batch_size=1)
    other = feature_cards(model, d, interp.Prompts(tuple(map(tuple, IDS)), padding="left"), [0, 1])
    np.testing.assert_allclose(one.measured, other.measured, atol=1e-5)
    frames = [x.examples()[["feature", "prompt", "position"]] for x in (one, other)]
    assert frames[0].equals(frames[1])


def test_logit_effects_are_the_product_of_the_weights(bundled_induction) -> None:
    model = bundled_induction
    d = hand_made(model)
    out = embeddings(model).W_U.double().numpy()
    W_O = model.weights_of(model.site(1)).added.double().numpy()
    cards = feature_cards(model, d, IDS, [0, 1], k=3)
    for f, card in enumerate(cards.cards):
        part = d.W_dec[f].double().unflatten(0, (W_O.shape[0], -1)).numpy()
        effects = sum(part[h] @ W_O[h] for h in range(len(W_O))) @ out
        order = np.argsort(-effects)
        assert [t for t, _ in card.promoted] == list(words(model, order[:3].tolist()))
        assert [t for t, _ in card.suppressed] == list(words(model, order[::-1][:3].tolist()))
        np.testing.assert_allclose([x for _, x in card.promoted], effects[order[:3]], rtol=1e-4)
        assert card.logit_effect == pytest.approx(np.abs(effects).max(), rel=1e-4)
    doubled = feature_cards(model, replace(d, W_dec=2 * d.W_dec), IDS, [0])
    assert doubled.cards[0].logit_effect == pytest.approx(2 * cards.cards[0].logit_effect)
    assert doubled.cards[0].logit_null == pytest.approx(2 * cards.cards[0].logit_null)
    assert doubled.cards[0].logit_p == cards.cards[0].logit_p


def test_a_direction_of_the_stream_acts_on_the_logits_directly(bundled_induction) -> None:
    """A row that is an unembedding column raises that token, more than random directions do."""
    model = bundled_induction
    out = embeddings(model).W_U.float()
    token = 11
    row = out[:, token] / out[:, token].norm()
    generator = torch.Generator().manual_seed(5)
    random = torch.randn(len(row), generator=generator)
    d = Dictionary(
        "standard",
        torch.eye(len(row))[:, :2],
        torch.stack([row, random / random.norm()]),
        torch.zeros(2),
        torch.zeros(len(row)),
        "resid_post",
        1,
    )
    cards = feature_cards(model, d, IDS, [0, 1])
    first, other = cards.cards
    assert (first.promoted[0][0],) == words(model, [token])
    assert first.promoted[0][1] == pytest.approx(float(out[:, token].norm()), rel=1e-4)
    assert first.logit_p == 0.01
    assert first.logit_effect > 2 * first.logit_null
    assert 0.5 < other.logit_effect / other.logit_null < 1.6
    assert other.logit_p > 0.01
    assert first.heads == ()
    assert "No shares of heads" in cards.notes[0]
    assert set(cards.metrics) == {"activation", "density", "logit_effect"}
    read = replace(d, site="attn_in", site_out="attn_in")
    without = feature_cards(model, read, IDS, [0])
    assert without.cards[0].promoted == ()
    assert "No effects on logits" in without.notes[0]
    assert without.metrics == ("activation", "density")


def test_a_row_in_one_head_has_all_of_its_share(bundled_induction) -> None:
    model = bundled_induction
    cards = feature_cards(model, hand_made(model), IDS, [0, 1, 2])
    heads = model.site(1).n_heads
    for f in (0, 1):
        want = [float(h == f) for h in range(heads)]
        assert cards.cards[f].heads == tuple(want)
        assert cards.cards[f].of_examples == tuple(want)
        assert cards.cards[f].main_head == f
        assert cards.cards[f].head_p == 0.01
    np.testing.assert_allclose(cards.cards[2].heads, 1 / heads, atol=1e-6)
    assert cards.cards[2].head_p == 1
    assert cards.cards[0].head_null == pytest.approx(1 / heads, abs=0.2)
    shares = cards.head_shares()
    assert shares.groupby("feature")["decoder"].sum().tolist() == pytest.approx([1, 1, 1])


def test_tokens_are_escaped_on_the_page(bundled_induction, tmp_path) -> None:
    example = FeatureExample(0, 1, 2.0, 0, ("<b>", "x\n&", ""), (math.nan, 2.0, 0.0))
    card = FeatureCard(
        3,
        (example,),
        (("<script>", 1.5),),
        (("</td>", -1.0),),
        1.5,
        1.0,
        0.5,
        (0.25, 0.75),
        0.6,
        0.2,
        (0.5, 0.5),
    )
    values = np.array([[[2.0, 1.0], [0.5, 0.25]]])
    made = {"model_id": "m", "made_by": "a test", "versions": {"interp": "0"}}
    page = FeatureCards((card,), values, values, 1, (), None, made).page()
    assert "Feature 3" in page
    assert "&lt;b&gt;" in page
    assert "&lt;script&gt;" in page
    assert "x⏎&amp;" in page
    assert "∅" in page
    for raw in ("<b>", "<script>", "</td>&"):
        assert raw not in page
    assert 'class="q32 special"' in page
    assert "L1H1" in page
    cards = feature_cards(bundled_induction, hand_made(bundled_induction), IDS, [0, 1])
    cards.save(tmp_path / "cards.html")
    written = (tmp_path / "cards.html").read_text(encoding="utf-8")
    assert written == cards.page()
    assert written.count("<h2>Feature ") == 2
    assert cards["activation"].top(1).page().count("<h2>Feature ") == 1


def test_wrong_arguments_are_refused(bundled_induction) -> None:
    model = bundled_induction
    d = hand_made(model)
    for wrong in ([3], [-1], []):
        with pytest.raises(OptionError, match="give some of 0 to 2"):
            feature_cards(model, d, IDS, wrong)
    with pytest.raises(OptionError, match="k must be at least 1, not 0"):
        feature_cards(model, d, IDS, [0], k=0)
    with pytest.raises(OptionError, match="no feature has a code"):
        feature_cards(model, replace(d, b_enc=torch.full((3,), -1e9)), IDS)
    with pytest.raises(PromptError, match="more than 1 tokens"):
        feature_cards(model, d, [[3], [4]], [0])
    with pytest.raises(DictionaryMismatch, match="no such layer"):
        feature_cards(model, replace(d, layer=9), IDS, [0])
    narrow = Dictionary(
        "standard",
        torch.ones(5, 2),
        torch.ones(2, 5),
        torch.zeros(2),
        torch.zeros(5),
        "attn_out",
        1,
    )
    with pytest.raises(DictionaryMismatch, match="5 entries at attn_out"):
        feature_cards(model, narrow, IDS, [0])


def test_cards_of_a_trained_dictionary_beside_shuffled_tokens(bundled_induction) -> None:
    model = bundled_induction
    prompts = interp.repeats(model, n=16, max_length=10)
    d = train_dictionary(model, prompts, layer=1, d_sae=24, k=2, steps=20, batch_rows=64).dictionary
    cards = feature_cards(model, d, interp.repeats(model, n=6, max_length=10, seed=9), n_features=4)
    frame = cards["density"].to_pandas()
    assert frame["null"].between(0, 1).all()
    assert (frame["null"] != frame["score"]).any()
    codes = cards.examples().groupby("feature")["activation"]
    assert codes.apply(lambda x: x.is_monotonic_decreasing).all()


def test_the_command_writes_a_page(run, tmp_path) -> None:
    quick = (
        "-n",
        "20",
        "--max-length",
        "10",
        "--set",
        "n_features=16",
        "--set",
        "k=2",
        "--set",
        "steps=2",
        "-q",
    )
    done = run(
        "train",
        "dictionary",
        "bundled:induction",
        "--layer",
        "1",
        "--top",
        "2",
        *quick,
        "-o",
        tmp_path / "made",
    )
    assert done.exit_code == 0, done.output
    assert "Cards of 2 features of layer 1" in done.stdout
    assert json.loads((tmp_path / "made" / "cards.json").read_text())["type"] == "FeatureCards"
    assert (tmp_path / "made" / "cards.html").read_text(encoding="utf-8").count("<h2>Feature ") == 2
    bad = run(
        "train",
        "dictionary",
        "bundled:induction",
        "--layer",
        "1",
        "--set",
        "lorsa",
        "--top",
        "2",
        *quick,
    )
    assert bad.exit_code != 0
    assert "--set architecture and --top" in bad.output
