"""Minimal pairs: likelihoods by hand, a head that is needed, and what cannot be asked."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from syntax.small_bert import save_bert
from transformers import BertConfig, BertForMaskedLM

import interp
from interp.core.errors import OptionError, PromptError, StoreError
from interp.syntax.pairs import MinimalPair, check_pairs, read_pairs

WORDS = [f"v{i}" for i in range(40)]


@pytest.fixture(scope="module")
def repeating_pairs():
    """The good sentence repeats what followed a word before; the bad one has another word."""
    rng = np.random.default_rng(0)
    out = []
    for _ in range(12):
        words = [f"v{i}" for i in rng.permutation(40)[:8]]
        first = " ".join(words[:7])
        out.append(MinimalPair(f"{first} {words[2]} {words[3]}", f"{first} {words[2]} {words[7]}"))
    return out


def test_the_head_that_the_pairs_need_is_told_from_others(
    numbered_bystander, repeating_pairs
) -> None:
    needed = check_pairs(numbered_bystander, repeating_pairs, ["L1H0"], n_random=6)
    assert needed.accuracy_clean == 1.0
    assert needed.drop[0] > 2
    assert needed.drop[0] > 10 * np.abs(needed.drop[1:]).max()
    assert needed.p == pytest.approx(1 / 7)
    bystander = check_pairs(numbered_bystander, repeating_pairs, [(1, 2)], n_random=40)
    assert abs(bystander.drop[0]) < 0.1 * needed.drop[0]
    assert bystander.p > 0.2


def test_likelihoods_are_those_of_the_next_tokens(numbered_bystander, repeating_pairs) -> None:
    found = check_pairs(numbered_bystander, repeating_pairs[:3], ["L1H0"], n_random=1)

    def likely(text):
        ids = numbered_bystander.tokenizer(text)["input_ids"]
        with torch.no_grad():
            log_p = numbered_bystander.run([ids])[0].double().log_softmax(-1)
        return sum(float(log_p[i, ids[i + 1]]) for i in range(len(ids) - 1))

    want = [likely(p.good) - likely(p.bad) for p in repeating_pairs[:3]]
    np.testing.assert_allclose(found.margin, want, atol=1e-5)
    assert found.likelihood == "log-likelihood"


def test_random_sets_have_as_many_heads_in_each_layer(numbered_bystander, repeating_pairs) -> None:
    found = check_pairs(
        numbered_bystander, repeating_pairs[:2], ["L0H1", "L1H0", "L1H3"], n_random=20
    )
    for heads in map(str.split, found.columns["heads"][1:]):
        assert sorted(h[:2] for h in heads) == ["L0", "L1", "L1"]
        assert not {"L0H1", "L1H0", "L1H3"} & set(heads)
        assert len(set(heads)) == 3


def masked_model(tmp_path):
    save_bert(tmp_path, WORDS)
    tokenizer = interp.load(tmp_path).tokenizer
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=48,
    )
    return interp.load(BertForMaskedLM(config).eval(), tokenizer=tokenizer)


def test_masked_models_score_one_token_at_a_time(tmp_path) -> None:
    model = masked_model(tmp_path)
    pair = MinimalPair("v1 v2 v3", "v1 v3 v2")
    found = check_pairs(model, [pair, pair], ["L0H0"], n_random=1)

    def pseudo(text):
        ids = model.tokenizer(text)["input_ids"]
        total = 0.0
        for i in range(1, len(ids) - 1):
            masked = [*ids[:i], model.tokenizer.mask_token_id, *ids[i + 1 :]]
            with torch.no_grad():
                total += float(model.run([masked])[0, i].double().log_softmax(-1)[ids[i]])
        return total

    assert found.margin[0] == pytest.approx(pseudo(pair.good) - pseudo(pair.bad), abs=1e-5)
    assert found.likelihood == "pseudo-log-likelihood"


def test_what_cannot_be_asked(numbered_bystander, repeating_pairs, tmp_path) -> None:
    with pytest.raises(OptionError, match="0 pairs and 1 heads"):
        check_pairs(numbered_bystander, [], ["L1H0"])
    with pytest.raises(OptionError, match="too few other heads"):
        check_pairs(numbered_bystander, repeating_pairs[:2], ["L1H0", "L1H1", "L1H2"])
    with pytest.raises(OptionError, match=r"L9H0|layer 9"):
        check_pairs(numbered_bystander, repeating_pairs[:2], ["L9H0"])
    with pytest.raises(PromptError, match="has no tokenizer"):
        check_pairs(interp.load("planted:bystander"), repeating_pairs[:2], ["L1H0"])
    bare = interp.load(save_bert(tmp_path, WORDS))
    with pytest.raises(PromptError, match="does not predict tokens"):
        check_pairs(bare, [MinimalPair("v1 v2", "v2 v1")], ["L0H0"], n_random=1)


def test_pairs_of_a_file(tmp_path) -> None:
    path = tmp_path / "p.jsonl"
    rows = [{"sentence_good": f"g{i}", "sentence_bad": f"b{i}", "UID": "x"} for i in range(5)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert read_pairs(path, n=2) == [MinimalPair("g0", "b0"), MinimalPair("g1", "b1")]
    assert len(read_pairs(path)) == 5
    path.write_text(json.dumps(rows[0]) + '\n{"sentence_good": "x"}\n')
    with pytest.raises(StoreError, match="line 2: not a JSON object with sentence_good"):
        read_pairs(path)
    path.write_text("\n")
    with pytest.raises(StoreError, match="contains no pairs"):
        read_pairs(path)
    with pytest.raises(StoreError, match="No such file"):
        read_pairs(tmp_path / "absent")
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(StoreError, match="not UTF-8"):
        read_pairs(path)


def test_it_shows_itself(numbered_bystander, repeating_pairs) -> None:
    found = check_pairs(numbered_bystander, repeating_pairs, ["L1H0"], n_random=3)
    frame = found.to_pandas()
    assert frame["set"].tolist() == ["checked", "random", "random", "random"]
    assert frame["drop"][0] == found.drop[0]
    assert "L1H0" in found._repr_html_()
