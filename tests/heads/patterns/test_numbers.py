"""What a page holds is what the model did, within what the page says."""

from __future__ import annotations

import re

import numpy as np
import pytest
from report import reading
from zoo import FAMILIES

import interp
from interp.heads.patterns import View, view
from interp.heads.patterns.coding import (
    as_letters,
    checked,
    compressed,
    quantised,
    resolution,
    weights_of,
)
from interp.heads.patterns.detail import LetterBlocks, order, terms_written
from interp.heads.patterns.stack import Terms

WITH_PRODUCTS = [
    "gpt2",
    "llama",
    "gemma2",
    "gpt_oss",
    "mistral_sliding",
    "deepseek_v3",
    "bert",
    "t5",
    "falcon_alibi",
    "bloom",
    "gpt_neo",
    "gptj",
    "mpnet",
]
BIASED = {"t5", "falcon_alibi", "bloom", "mpnet"}


def shown(family: str) -> View:
    zoo = FAMILIES[family]
    model = interp.load(zoo.model(), name=family, check=False)
    ids = [[5, 9, 3, 7, 5, 9, 3, 8, 6, 4, 5, 9]]
    return view(model, ids)


@pytest.mark.parametrize("bits", [8, 16])
def test_codes_stay_within_the_resolution_that_pages_state(bits) -> None:
    weights = np.concatenate([np.linspace(0, 1, 10_001), np.geomspace(1e-7, 1, 1000)])
    off = np.abs(weights_of(quantised(weights, bits), bits) - weights)
    assert off.max() <= resolution(bits)
    assert off.max() > 0.8 * resolution(bits)  # and the statement is not far too wide
    small = weights < 1 / 512  # an even weight over 512 keys keeps a digit even in 8 bits
    assert off[small].max() < 0.1 / 512 * (5 if bits == 8 else 1)


@pytest.mark.parametrize("family", WITH_PRODUCTS)
def test_a_page_holds_the_patterns_of_the_model_itself(family) -> None:
    zoo = FAMILIES[family]
    found = shown(family)
    page = found.html()
    data = reading.data_of(page)
    [said] = re.findall(r"computed weight by at most ([0-9.e-]+), small", page)
    import torch

    inputs = {"input_ids": torch.tensor([[5, 9, 3, 7, 5, 9, 3, 8, 6, 4, 5, 9]])}
    if zoo.kind == "seq2seq" or "cross" in {s for s, _ in zoo.sites}:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    seen = 0
    for stack, layer, attention in zoo.expected(zoo.model(), inputs):
        [mine] = [s for s in data["stacks"] if s["name"] == stack]
        for head, own in enumerate(attention[0].numpy()):
            [item] = [h for h in mine["heads"] if h["name"] == f"L{layer}H{head}"]
            np.testing.assert_allclose(reading.weights(page, item), own, atol=float(said), rtol=0)
            seen += 1
    assert seen == sum(len(s["heads"]) for s in data["stacks"])


@pytest.mark.parametrize("family", WITH_PRODUCTS)
def test_products_sum_to_the_score_whose_softmax_is_the_pattern(family) -> None:
    found = shown(family)
    page = found.html()
    biased = set()
    for stack in reading.data_of(page)["stacks"]:
        for head in stack["heads"]:
            biased |= {stack["name"]} if "bias" in head["terms"] else set()
            _, weights = reading.softmax(page, head["terms"])
            own = found.pattern(head["name"], stack["name"])
            np.testing.assert_allclose(weights, own, atol=2e-3)
    assert bool(biased) == (family in BIASED)


def test_what_alibi_adds_is_shown_as_its_slope_times_the_distance() -> None:
    [stack] = shown("bloom").stacks
    for head, terms in stack.terms.items():
        assert terms.scale == terms.q.shape[1] ** -0.5
        assert terms.bias is not None
        last = terms.bias[-1]
        np.testing.assert_allclose(np.diff(last), np.diff(last)[0], atol=1e-5)
        assert np.diff(last)[0] > 0, head


def test_terms_in_python_are_exact() -> None:
    for stack in shown("gemma2").stacks:
        for head, terms in stack.terms.items():
            np.testing.assert_allclose(terms.weights(), stack.weights[head], atol=2e-6)
            assert terms.softcap == 1.5


def test_rows_with_a_sink_sum_to_less_than_one_and_say_so() -> None:
    found = shown("gpt_oss")
    page = found.html()
    for head in reading.data_of(page)["stacks"][0]["heads"]:
        assert head["terms"]["sink"] is not None
        _, weights = reading.softmax(page, head["terms"])
        assert (weights.sum(-1) < 1).all()


def test_a_family_without_one_product_says_why() -> None:
    model = interp.load(FAMILIES["deberta"].model(), name="deberta", check=False)
    page = view(model, [[5, 9, 3, 7]]).html()
    [stack] = reading.data_of(page)["stacks"]
    assert not any("terms" in head for head in stack["heads"])
    assert "not one product" in stack["why"]


def test_smaller_pages_state_what_they_leave_out() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 4, 96, 96)) * 2
    e = np.exp(logits - logits.max(-1, keepdims=True))
    patterns = e / e.sum(-1, keepdims=True)
    found = View.of_patterns(patterns, [f"t{i}" for i in range(96)], named=["L1H2"])
    [last] = [str(head) for _, head in order(found)[-1:]]  # attends to the most keys
    ways = []
    for budget in range(325_000, 137_500, -12_500):
        page = found.html(budget=budget)
        assert len(page.encode()) <= budget
        heads = {h["name"]: h for h in reading.data_of(page)["stacks"][0]["heads"]}
        bits, block = heads[last]["bits"], heads[last]["block"]
        kept = sum(h["block"] == 1 for h in heads.values())
        ways.append((-bits, block, -kept))
        assert heads["L1H2"]["block"] == 1  # it was named
        told = re.search(r"(\d) heads? (?:is|are) in full, .* for (\d+) tokens", page)
        assert (told is None) == (block == 1)
        assert told is None or (int(told[1]), int(told[2])) == (kept, block)
        assert f"stored in {bits} bits" in page
        want = found.pattern(last).reshape(96 // block, block, 96 // block, block).sum(3).mean(1)
        off = np.abs(reading.weights(page, heads[last]) - want).max()
        assert off <= resolution(bits) * 1.01
        whole = reading.weights(page, heads["L1H2"])
        assert np.abs(whole - patterns[1, 2]).max() <= resolution(bits) * 1.01
    assert ways == sorted(ways)  # less room, never more detail
    assert {way[:2] for way in ways} >= {(-16, 1), (-8, 1), (-8, 2)}
    assert len({way for way in ways if way[1] == 2}) > 1  # and not all or nothing
    with pytest.raises(interp.core.errors.OptionError, match="larger budget"):
        found.html(budget=30_000)


def test_queries_and_keys_that_do_not_fit_are_left_out_and_counted() -> None:
    found = view(
        interp.load("bundled:induction"), "the cat and the other cat sat near the tree " * 3
    )
    full = found.html()
    n = len(found.stacks[0].weights)
    assert "Queries and keys of every head are stored" in full
    page = found.html(budget=len(full.encode()) - 20_000)
    held = [h["name"] for h in reading.data_of(page)["stacks"][0]["heads"] if "terms" in h]
    assert 0 < len(held) < n
    assert f"Queries and keys of {len(held)} of {n} heads are stored" in page
    first = [str(head) for _, head in order(found)]
    assert sorted(held) == sorted(first[: len(held)])  # those that attend to the fewest keys


def test_only_the_past_is_stored_where_there_is_no_future() -> None:
    n = 40
    pattern = np.tri(n) / np.arange(1, n + 1)[:, None]
    page = View.of_patterns(pattern[None, None], ["x"] * n).html()
    [head] = reading.data_of(page)["stacks"][0]["heads"]
    assert head["w"]["t"]
    np.testing.assert_allclose(reading.weights(page, head), pattern, atol=2e-5)


@pytest.mark.parametrize("bad", [np.full((2, 2), np.nan), np.full((2, 2), -0.5), np.eye(2) * 3])
def test_scores_are_not_taken_for_weights(bad) -> None:
    with pytest.raises(interp.core.errors.OptionError):
        checked(bad, "a pattern")


def test_a_position_of_zeros_is_written_as_zeros() -> None:
    q = np.array([[0.0, 0.0], [3.0, -1.0]], dtype=np.float32)
    store = LetterBlocks()
    terms_written(Terms(q, q, 1.0), store)
    steps = np.array([[1.0], [3 / 32767]], dtype="<f4")
    numbers = np.array([[0, 0], [32767, -10922]], dtype="<i2")
    want = [as_letters(compressed(x, triangle=False)) for x in (numbers, steps)]
    assert [store.blobs["b0"], store.blobs["b1"]] == want
