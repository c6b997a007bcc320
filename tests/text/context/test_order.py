"""Passages in the order of a planted preference: it helps where there is one, and only there."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers

import interp
from interp.core.errors import OptionError, PromptError
from interp.text.chains import Chain
from interp.text.context import passage_order
from interp.text.context.order import place_preference, placed_passages
from interp.text.context.passages import read_passages

PLACES, SIZE, QUESTION, FIRST_ANSWER, ANSWERS = 4, 3, 2, 40, 10


def reader(*, basin: bool) -> interp.Model:
    """A head that copies answer words, by attention to the first and last place, or evenly."""
    n = PLACES * SIZE
    config = transformers.GPT2Config(
        vocab_size=60,
        n_positions=n + QUESTION + 2,
        n_embd=64,
        n_layer=1,
        n_head=2,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        module = transformers.GPT2LMHeadModel(config).eval()
    at = torch.arange(config.n_positions)
    ends = (at < SIZE) | ((at >= n - SIZE) & (at < n))
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.fill_(float("ln" in name and name.endswith("weight")))
        block, width = module.transformer.h[0].attn, config.n_embd
        module.transformer.wpe.weight[:, 0] = 2.0 * ends - 1
        module.transformer.wpe.weight[:, 1] = 1.0 - 2 * ends  # the norm keeps the mark
        for i in range(ANSWERS):
            module.transformer.wte.weight[FIRST_ANSWER + i, 10 + i] = 1
            block.c_attn.weight[10 + i, 2 * width + i] = 1  # the value
            block.c_proj.weight[i, 10 + i] = 8
        block.c_attn.bias[31] = 4  # the query
        block.c_attn.weight[0, width + 31] = 4.0 * basin
    return interp.load(module, name="reader")


def chains(n: int = 8) -> list[Chain]:
    draw, found = np.random.default_rng(0), []
    for i in range(n):
        body = draw.integers(2, 38, PLACES * SIZE)
        source, answer = i % PLACES, FIRST_ANSWER + int(draw.integers(ANSWERS))
        body[source * SIZE + 1] = answer
        spans = tuple((p * SIZE, (p + 1) * SIZE) for p in range(PLACES))
        found.append(
            Chain(tuple(body.tolist()), spans, ("",) * PLACES, (2, 3), (answer,), sources=(source,))
        )
    return found


def test_the_preferred_place_brings_the_answer() -> None:
    model = reader(basin=True)
    shares = place_preference(model, PLACES, SIZE, question=QUESTION)
    assert shares.sum() == pytest.approx(1)
    assert shares[[0, 3]].min() > 1.5 * shares[[1, 2]].max()
    found = passage_order(model, chains())
    assert found.order.tolist() == ["preferred", "least preferred", "random"]
    best, worst, random = found.score
    assert best > random + 0.3
    assert random > worst + 0.3
    assert best > 2 * found.sem[0]
    assert found.null[0] == random
    ends = [i % PLACES in (0, 3) for i in range(8)]
    np.testing.assert_allclose(found.per_prompt[0, ends], 0, atol=1e-3)  # they are there already
    assert (found.per_prompt[0, np.logical_not(ends)] > 0.5).all()


def test_without_a_preference_no_order_changes_the_answer() -> None:
    found = passage_order(reader(basin=False), chains())
    np.testing.assert_allclose(found.per_prompt, 0, atol=1e-5)


def test_the_most_relevant_passage_takes_the_most_preferred_place() -> None:
    assert placed_passages([0.1, 0.9, 0.5], [0.2, 0.3, 0.5]) == (0, 2, 1)
    assert placed_passages([0, 0, 1], [0.5, 0.1, 0.4]) == (2, 1, 0)
    with pytest.raises(OptionError, match="one finite number for each"):
        placed_passages([1, 2], [0.1])
    with pytest.raises(OptionError, match="one finite number for each"):
        placed_passages([1, float("nan")], [0.1, 0.2])


def test_given_relevances_are_used_and_bad_chains_refused() -> None:
    model, made = reader(basin=True), chains(2)
    wrong = [[float(i not in c.sources) for i in range(PLACES)] for c in made]
    misled = passage_order(model, made, relevance=wrong)
    assert misled.score[0] < passage_order(model, made).score[0]
    with pytest.raises(OptionError, match="1 relevances for 2 chains"):
        passage_order(model, made, relevance=[[1.0]])
    with pytest.raises(OptionError, match="at least one chain"):
        passage_order(model, [])
    short = Chain((5, 6, 7, 8), ((0, 2), (2, 4)), ("", ""), (), (9,))
    with pytest.raises(OptionError, match="at least 3"):
        passage_order(model, [short])
    gap = Chain((5, 6, 7, 8), ((0, 1), (1, 2), (3, 4)), ("",) * 3, (), (9,))
    with pytest.raises(PromptError, match="belong to no passage"):
        passage_order(model, [gap])
    with pytest.raises(PromptError, match="no answer"):
        passage_order(model, [Chain((5, 6, 7), ((0, 1), (1, 2), (2, 3)), ("",) * 3)])


def test_a_file_of_passages_is_read_and_its_lines_are_checked(tmp_path) -> None:
    model = interp.load("bundled:induction")
    path = tmp_path / "passages.jsonl"
    good = {
        "passages": [" the a b", " c d", " e f"],
        "question": " q",
        "answer": " d",
        "sources": [1],
    }
    path.write_text(json.dumps(good) + "\n", encoding="utf-8")
    [one] = read_passages(path)
    chain = one.chain(model)
    assert chain.sources == (1,)
    assert [model.tokenizer.decode(chain.ids[a:b]) for a, b in chain.spans] == good["passages"]
    assert passage_order(model, [chain], n_random=2).n.tolist() == [1] * 3
    for change, match in (
        ({"passages": "a"}, "not a list of texts"),
        ({"sources": [3]}, "from 0"),
        ({"sources": []}, "from 0"),
        ({"answer": 1}, "are texts"),
        ({"other": 1}, "unknown field"),
    ):
        path.write_text(json.dumps(good | change) + "\n", encoding="utf-8")
        with pytest.raises(PromptError, match=match):
            read_passages(path)
