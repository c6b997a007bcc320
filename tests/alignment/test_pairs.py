"""Pairs of sequences as prompts: what both stacks read, words of tokens, and wrong pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.alignment import SentencePair, encode_pairs
from interp.alignment.pairs import words_of_tokens
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts


def id_pairs(n: int = 6, end: int = 2) -> list[SentencePair]:
    """Random pairs of different lengths, for the vocabulary of the zoo."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(n):
        source, target = (rng.integers(8, 64, rng.integers(2, 9)).tolist() for _ in range(2))
        gold = frozenset((int(rng.integers(len(source))), t) for t in range(len(target)))
        made.append(SentencePair((*source, end), (*target, end), gold))
    return made


@pytest.mark.parametrize("name", ["bart", "t5", "marian"])
def test_a_batch_of_pairs_is_its_pairs_alone(name, loaded) -> None:
    model = loaded(name)
    encoded = encode_pairs(model, id_pairs())
    start = model.config.decoder_start_token_id
    with torch.no_grad():
        whole = model.run(encoded.prompts)
        for i, pair in enumerate(encoded.pairs):
            source = torch.tensor([pair.source])
            ends = {model.config.eos_token_id}
            kept = pair.target[:-1] if pair.target[-1] in ends else pair.target
            read = torch.tensor([[start, *kept]])
            alone = model.module(input_ids=source, decoder_input_ids=read).logits
            found = whole[i : i + 1, : read.shape[1]]
            torch.testing.assert_close(found, alone, atol=1e-4, rtol=1e-4)


def test_statistics_of_all_stacks_are_those_of_the_pair(loaded) -> None:
    """Entropy of cross attention and a predicate of tokens in the decoder, on padded batches."""
    model = loaded("bart")
    pairs = [SentencePair((9, 10, 11, 2), (8, 9, 8, 2)), SentencePair((9, 2), (7, 7, 12, 7, 7, 2))]
    encoded = encode_pairs(model, pairs)
    table = interp.score(model, ["entropy", "duplicate_token"], encoded.prompts, null="none")
    frame = table.to_pandas()
    assert set(frame[frame["metric"] == "entropy"]["stack"]) == {"encoder", "decoder", "cross"}
    assert set(frame[frame["metric"] == "duplicate_token"]["stack"]) == {"encoder", "decoder"}
    entropies, masses = [], []
    for i in range(2):
        cache = model.capture(encoded.prompts.part([i]), ["pattern"])
        cross = cache["pattern", 1, "cross"][0].double()
        entropies.append(-(cross * cross.log()).sum(-1).mean(-1))
        read = torch.tensor(encoded.prompts.decoder.ids[i])
        own = cache["pattern", 1, "decoder"][0].double()
        same = torch.tril(read[:, None] == read, diagonal=-1)
        rows = same.any(-1)
        masses.append((own * same).sum(-1)[:, rows].mean(-1))
    for stack, metric, want in (
        ("cross", "entropy", entropies),
        ("decoder", "duplicate_token", masses),
    ):
        rows = frame[
            (frame["stack"] == stack) & (frame["metric"] == metric) & (frame["layer"] == 1)
        ]
        np.testing.assert_allclose(rows["score"], torch.stack(want).mean(0), atol=1e-5)


def test_prompts_keep_their_decoder_inputs() -> None:
    given = Prompts(((1, 2), (3,), (4, 5)), decoder=Prompts(((0, 6), (0, 7, 8), (0, 9))))
    assert given.part([2, 0]).decoder == Prompts(((0, 9), (0, 6)))
    assert [len(p) for p in given.batches(3, padded=False)] == [1, 1, 1]
    same = Prompts(((1, 2), (4, 5)), decoder=Prompts(((0, 6), (0, 9))))
    assert [len(p) for p in same.batches(3, padded=False)] == [2]
    other = Prompts(given.ids, decoder=Prompts(((0, 6), (0, 7, 8), (0, 8))))
    assert given.hash != other.hash != Prompts(given.ids).hash
    assert [a == b for a, b in zip(given.prompt_ids, other.prompt_ids, strict=True)] == [1, 1, 0]
    null = given.shuffled(0, keep_first=False)
    assert null.decoder is not None
    assert null.decoder.looked_at() == given.decoder.ids
    assert all(
        sorted(a) == sorted(b) for a, b in zip(null.decoder.ids, given.decoder.ids, strict=True)
    )
    assert all(ids[0] == 0 for ids in null.decoder.ids)
    with pytest.raises(PromptError, match="1 decoder inputs for 2 prompts"):
        Prompts(((1,), (2,)), decoder=Prompts(((0,),)))


class Pieces:
    """A tokenizer without offsets that splits words into letters; X splits only within a text."""

    is_fast = False

    def __call__(self, text: str = "", *, text_target: str = "", **options: Any) -> dict:
        whole = text or text_target
        ids = [ord(c) for c in whole if c != " "]
        if "X" in whole and " " in whole:
            ids = [*ids, 1]
        if options.get("add_special_tokens", True):
            return {"input_ids": [*ids, 2], "special_tokens_mask": [0] * len(ids) + [1]}
        return {"input_ids": ids}


def test_words_of_tokens_with_and_without_offsets() -> None:
    ids, words = words_of_tokens(Pieces(), "ab c")
    assert ids == (97, 98, 99, 2)
    assert words == (0, 0, 1, -1)
    with pytest.raises(PromptError, match="cannot be assigned to words"):
        words_of_tokens(Pieces(), "aX c")
    fast = interp.load("bundled:induction", check=False).tokenizer
    text = "Anna walked home, quietly"
    ids, words = words_of_tokens(fast, text)
    assert words[0] == -1  # <s>
    for i, word in enumerate(text.split()):
        own = [t for t, w in zip(ids, words, strict=True) if w == i]
        assert fast.decode(own).strip() == word


def test_wrong_pairs(loaded) -> None:
    bart = loaded("bart")
    for pairs, message in (
        ([], "no sentence pairs"),
        ([((9, 2), ())], "pair 0: the target is empty"),
        ([("a", "b")], "has no tokenizer"),
        ([((9,) * 65, (8,))], "prompt 0 has 65 tokens; .* positions for 64"),
        ([((9,), (8,) * 64)], "decoder input: prompt 0 has 65 tokens"),
        ([((99,), (8,))], "token id 99"),
        ([3], "pair 0 is not a sentence pair"),
    ):
        with pytest.raises(PromptError, match=message) as raised:
            encode_pairs(bart, pairs)
        assert "\n" not in str(raised.value)
    llama = loaded("llama")
    with pytest.raises(OptionError, match="has no cross attention; give an encoder-decoder"):
        encode_pairs(llama, [((9,), (8,))])
    with pytest.raises(PromptError, match="no decoder beside an encoder"):
        llama.run(encode_pairs(bart, [((9,), (8,))]).prompts)


def test_only_a_last_end_of_a_target_is_not_read(loaded) -> None:
    bart = loaded("bart")
    start, end = bart.config.decoder_start_token_id, bart.config.eos_token_id
    read = encode_pairs(bart, [((9,), (8, 7, end)), ((9,), (end, 8))]).prompts.decoder
    assert read is not None
    assert read.ids == ((start, 8, 7), (start, end, 8))
