"""Pieces to words, and attention between pieces to attention between words."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from syntax.made import sentence, word_tokenizer
from syntax.small_bert import save_bert
from together import over

import interp
from interp.core.errors import OptionError, PromptError
from interp.syntax.align import SPECIAL, align, by_offsets, how, refined
from interp.syntax.attention import WordReading, word_attention, words_of
from interp.syntax.treebank import Sentence, Treebank


@pytest.fixture(scope="module")
def bert_model(tmp_path_factory):
    words = ["the", "small", "cats", "were", "sleeping", "don't", "on", "a", "rug"]
    return interp.load(save_bert(tmp_path_factory.mktemp("b"), words))


def bank(*sentences):
    return Treebank("t", tuple(sentences), "0" * 64)


def test_pieces_of_words_given_one_by_one(bert_model) -> None:
    s = sentence((1, 2, -1), words=("the", "sleeping", "cats"))
    found = align(bert_model, s, "words")
    pieces = bert_model.tokenizer.convert_ids_to_tokens(list(found.ids))
    assert pieces == ["[CLS]", "the", "slee", "##ping", "cats", "[SEP]"]
    assert found.words == (SPECIAL, 0, 1, 1, 2, SPECIAL)


def test_pieces_by_their_characters_in_the_text(bert_model) -> None:
    s = sentence((1, 2, -1), words=("the", "sleeping", "cats"))
    assert align(bert_model, s, "offsets") == align(bert_model, s, "words")


def test_a_piece_goes_to_the_word_it_shares_most_letters_with() -> None:
    class Pieces:
        def __call__(self, text, **options):
            return {"input_ids": [5, 6, 7], "offset_mapping": [(0, 3), (3, 9), (9, 9)]}

    # words "ab" (0, 2), "cdefg" (2, 7), "hi" (7, 9): the first piece has two letters of the first
    assert by_offsets(Pieces(), "abcdefghi", [(0, 2), (2, 7), (7, 9)]).words == (0, 1, SPECIAL)


def multiword(surface, words):
    n = len(words)
    return Sentence(
        tuple(words),
        (-1, *[0] * (n - 1)),
        ("root", *["dep"] * (n - 1)),
        ("X",) * n,
        surface,
        ((0, len(surface)),) * n,
        multiword=((0, n),),
    )


def test_words_of_a_multiword_token_share_its_letters() -> None:
    assert refined(multiword("Don't", ("Do", "n't"))) == [(0, 2), (2, 5)]
    assert refined(multiword("du", ("de", "le"))) == [(0, 2), (2, 2)]


def test_a_word_without_pieces_leaves_its_sentence_out_and_is_counted(bert_model) -> None:
    fine = sentence((1, -1), words=("the", "cats"))
    found = word_attention(
        bert_model, bank(multiword("du", ("de", "le")), fine), WordReading(pieces="offsets")
    )
    assert found.sentences == (fine,)
    assert found.counts["without_pieces"] == 1
    assert found.counts["words_without_pieces"] == 1


def test_long_and_single_word_sentences_are_left_out_and_counted(bert_model) -> None:
    long = sentence((-1, *[0] * 59), words=("cats",) * 60)
    found = word_attention(
        bert_model, bank(long, sentence((-1,)), sentence((1, -1), words=("a", "rug")))
    )
    assert (found.counts["too_long"], found.counts["single_words"], len(found)) == (1, 1, 1)
    with pytest.raises(PromptError, match="none of 1 sentences could be read: 1 too long"):
        word_attention(bert_model, bank(long))


def test_a_text_not_made_of_its_words_is_left_out_where_it_is_read(bert_model) -> None:
    odd = Sentence(("a", "b"), (1, -1), ("dep", "root"), ("X", "X"), "other", None)
    with pytest.raises(PromptError, match="1 with a text that differs from their words"):
        word_attention(bert_model, bank(odd), WordReading(pieces="offsets"))
    assert len(word_attention(bert_model, bank(odd), WordReading(pieces="words"))) == 1


def test_which_tokenizers_can_be_used(bert_model) -> None:
    assert how(bert_model) == "words"
    slow = SimpleNamespace(name="m", tokenizer=SimpleNamespace(is_fast=False), kind="encoder")
    with pytest.raises(PromptError, match="not a fast tokenizer"):
        how(slow)
    with pytest.raises(PromptError, match="has no tokenizer"):
        how(SimpleNamespace(name="m", tokenizer=None, kind="encoder"))
    with pytest.raises(OptionError, match="'auto', 'words' or 'offsets'"):
        how(bert_model, "letters")
    planted = interp.load("planted:bystander", tokenizer=word_tokenizer(["a", "b"]))
    assert how(planted) == "offsets"


# --- joining ------------------------------------------------------------------------------------

WORDS = torch.tensor([-1, 0, 1, 1, 2, -1])


def naive(pattern, join_to, join_from):
    """Loops over words and pieces."""
    pick = {"sum": np.sum, "mean": np.mean, "max": np.max, "first": lambda x, axis: x.take(0, axis)}
    at = [np.flatnonzero(WORDS.numpy() == w) for w in range(3)]
    out = np.zeros((len(pattern), 3, 3))
    for i in range(3):
        for j in range(3):
            if i != j:
                block = pattern[:, at[i]][:, :, at[j]]
                out[:, i, j] = pick[join_from](pick[join_to](block, axis=2), axis=1)
    return out


@over("to", ["sum", "mean", "first", "max"])
@over("attending", ["sum", "mean", "first", "max"])
def test_every_way_to_join_equals_loops(to, attending) -> None:
    pattern = torch.rand(4, 6, 6).softmax(-1)
    found = words_of(pattern, WORDS, 3, WordReading(to=to, attending=attending))
    np.testing.assert_allclose(found.numpy(), naive(pattern.numpy(), to, attending), rtol=1e-6)


def test_mass_is_kept_but_for_special_tokens_and_itself() -> None:
    pattern = torch.rand(2, 6, 6, dtype=torch.float64).softmax(-1)
    found = words_of(pattern, WORDS, 3, WordReading())
    itself = pattern[:, 2:4, 2:4].sum(-1).mean(-1)
    special = pattern[:, 2:4][:, :, [0, 5]].sum(-1).mean(-1)
    torch.testing.assert_close(found[:, 1].sum(-1), 1 - itself - special)


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(OptionError, match=re.escape("one of sum, mean, first, max")):
        WordReading(to="median")


def test_batches_and_padding_change_nothing(bert_model) -> None:
    sentences = [
        sentence((-1, *[0] * (n - 1)), words=("the", "small", "sleeping", "cats", "rug")[:n])
        for n in (2, 5, 3, 4)
    ]
    together = word_attention(bert_model, bank(*sentences))
    for one, value in zip(sentences, together.values, strict=True):
        (alone,) = word_attention(bert_model, bank(one)).values
        np.testing.assert_allclose(value, alone, atol=1e-6)
        assert value.shape == (4, len(one), len(one))
    assert together.heads == ("L0H0", "L0H1", "L1H0", "L1H1")


def test_shuffled_words_are_put_back(bert_model) -> None:
    """BERT without positions would not notice; with them only the order of reading differs."""
    s = sentence((1, 2, -1, 2), words=("the", "sleeping", "cats", "rug"))
    found = word_attention(bert_model, bank(s), WordReading(shuffled=3))
    order = np.random.default_rng(3).permutation(4)
    assert order.tolist() != [0, 1, 2, 3]
    read = sentence((-1, 0, 0, 0), words=tuple(s.words[i] for i in order))
    (want,) = word_attention(bert_model, bank(read)).values
    np.testing.assert_allclose(found.values[0][:, order[:, None], order[None, :]], want, atol=1e-7)
    assert found.sentences == (s,)


def test_a_decoder_reads_the_text_and_looks_back_only() -> None:
    words = [f"v{i}" for i in range(40)]
    model = interp.load("planted:bystander", tokenizer=word_tokenizer(words))
    s = sentence((1, 2, -1, 2, 3), words=("v3", "v9", "v1", "v7", "v2"))
    found = word_attention(model, bank(s))
    (value,) = found.values
    assert not np.triu(value).any()
    head = found.heads.index("L0H3")  # looks one token back
    assert np.diagonal(value[head], -1) == pytest.approx(1.0, abs=1e-4)


def test_a_stack_that_is_not_there(bert_model) -> None:
    with pytest.raises(OptionError, match="has the stacks encoder, not 'decoder'"):
        word_attention(bert_model, bank(sentence((1, -1))), stack="decoder")
