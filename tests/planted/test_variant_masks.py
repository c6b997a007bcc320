"""Variants that choose keys, against their masks computed a second time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from planted.test_variant_formulas import LENGTH, WIDTH, given, numbers
from planted.variant_entries import (
    D,
    attended,
    causal_softmax,
    compare,
    product,
    split,
    x_of,
)
from scipy.special import softmax

from training import forms
from training.forms.rule import RuleShape, turned_by_place
from training.forms.rules.masks import wythoff


def kinds(rule: Any, state: Any) -> list[int]:
    return [int(np.argmax(numbers(rule, "types") @ x)) for x in x_of(state)]


def still_visible(rule: Any, state: Any, h: int, i: int, j: int) -> bool:
    kind = kinds(rule, state)
    match kind[j]:
        case 0:
            return True
        case 1:
            return i == j or not any(kind[m] == 0 for m in range(j + 1, i + 1))
    return i - j < 4


def of_cluster(rule: Any, state: Any, h: int, i: int, j: int) -> bool:
    centres = numbers(rule, "centres")[h]

    def nearest(x: torch.Tensor) -> int:
        return int(np.argmax([x.numpy() @ c / np.linalg.norm(c) for c in centres]))

    return i == j or nearest(state.q[0, h, i]) == nearest(state.k[0, h, j])


def among_best(values: dict[int, float], j: int, i: int, n: int) -> bool:
    return j == i or j in sorted(values, key=lambda m: -values[m])[:n]


def by_estimate(rule: Any, state: Any, h: int, i: int, j: int) -> bool:
    draws = numbers(rule, "draws")[h]

    def phi(x: np.ndarray) -> np.ndarray:
        x = x / math.sqrt(2)  # the fourth root of d = 4
        return np.exp(x @ draws - x @ x / 2)

    q, k = state.q.numpy()[0, h, i], state.k.numpy()[0, h]
    return among_best({m: float(phi(q) @ phi(k[m])) for m in range(i + 1)}, j, i, 4)


def by_narrow_product(rule: Any, state: Any, h: int, i: int, j: int) -> bool:
    of_row, of_key = numbers(rule, "narrow")[:, h]
    x = x_of(state)
    return among_best({m: float(x[i] @ of_row @ (x[m] @ of_key)) for m in range(i + 1)}, j, i, 4)


def by_region(rule: Any, state: Any, h: int, i: int, j: int) -> bool:
    q, k = state.q.numpy()[0, h], state.k.numpy()[0, h]
    mean = [x.mean(0) for x in (q[i // 4 * 4 : i // 4 * 4 + 4], k[:4], k[4:8], k[8:])]
    order = sorted(range(3), key=lambda r: -float(mean[0] @ mean[1 + r]))
    return j // 4 in order[:2]


MASKS: dict[str, Callable[[Any, Any, int, int, int], bool]] = {
    "clusters": of_cluster,
    "masked_heads": lambda r, s, h, i, j: (
        h == 1 or max(abs(i // 4 - j // 4), abs(i % 4 - j % 4)) <= 1
    ),
    "token_types": still_visible,
    "estimated_mask": by_estimate,
    "low_rank_mask": by_narrow_product,
    "region_routing": by_region,
    "sentinel_tokens": lambda r, s, h, i, j: j == 7 or i // 8 == j // 8,
    "candidate_blocks": lambda r, s, h, i, j: j < 8 or (i >= 8 and (i - 8) // 4 == (j - 8) // 4),
    "independent_blocks": lambda r, s, h, i, j: i // 8 == j // 8,
}


@torch.no_grad()
@pytest.mark.parametrize("name", MASKS)
def test_rows_are_softmax_over_the_keys_of_the_paper(name) -> None:
    rule, state = given(name)

    def entry(rule: Any, state: Any, h: int, i: int, j: int) -> float:
        last = i + 1 if rule.causal else LENGTH
        kept = [m for m in range(last) if MASKS[name](rule, state, h, i, m)]
        if j not in kept:
            return 0.0
        return attended([product(state, h, i, m) for m in kept], kept.index(j))

    compare(rule, state, entry)


def test_rows_of_the_wythoff_array() -> None:
    assert wythoff(1, 20) == [1, 2, 3, 5, 8, 13]
    assert wythoff(2, 30) == [4, 7, 11, 18, 29]
    every = [t for row in range(1, 60) for t in wythoff(row, 50)]
    assert sorted(every) == list(range(1, 51))  # each distance belongs to one head
    assert wythoff(1, 5, modified=True) == [0, 1, 1, 2, 3, 5]
    assert wythoff(2, 20, modified=True) == [1, 3, 4, 7, 11, 18]
    assert wythoff(3, 20, modified=True) == [2, 4, 6, 10, 16]


@torch.no_grad()
def test_fibonacci_heads_have_windows_and_another_order_per_layer() -> None:
    """The windows of 4 heads of 60 positions are 5, 10, 15 and 20."""
    rows = [{0, 1, 2, 3, 5}, {0, 1, 3, 4, 7}, {0, 2, 4, 6, 10}, {0, 3, 6, 9, 15}]
    found = []
    for layer in range(4):
        rule: Any = forms.rule_class("fibonacci")(RuleShape(16, 4, 4, 60, layer))
        state = rule.prepare(torch.randn(1, 25, 16))
        last = rule.seen(state, torch.tensor([24]))[:, 0]
        found.append([{24 - j for j in range(25) if head[j]} for head in last.tolist()])
        assert not rule.seen(state, state.every).triu(1).any()
    assert all(sorted(map(sorted, heads)) == sorted(map(sorted, rows)) for heads in found)
    assert any(heads != found[0] for heads in found)


@torch.no_grad()
def test_masked_heads_see_windows_of_two_sizes() -> None:
    rule: Any = forms.rule_class("masked_heads")(RuleShape(16, 4, 4, 16))
    state = rule.prepare(torch.randn(1, 16, 16))
    number = rule.seen(state, torch.tensor([0, 5]))[..., :].sum(-1)  # a corner, and inside
    assert number.tolist() == [[4, 9], [16, 16], [9, 16], [16, 16]]


@torch.no_grad()
def test_passages_are_made_once_and_turned_to_their_place() -> None:
    rule, state = given("independent_blocks")
    cached = rule.prepare(state.x[:, 8:11])  # the second passage, made by itself
    torch.testing.assert_close(turned_by_place(cached.k, torch.full((3,), 8)), state.k[:, :, 8:11])
    plain = rule.split(rule.key(state.x))
    torch.testing.assert_close(turned_by_place(plain, state.every), state.k)
    model = forms.build("independent_blocks")
    one, two = torch.randint(4, 60, (2, 8), generator=torch.Generator().manual_seed(2))
    hidden = [model(torch.cat(pair)[None]).logits[0] for pair in ((one, two), (two, one))]
    torch.testing.assert_close(hidden[0][:8], hidden[1][8:])  # whatever stands before


@torch.no_grad()
def test_late_rows_see_all_passages() -> None:
    rule, state = given("independent_blocks")
    long = rule.prepare(torch.cat([state.x, state.x], 1)[:, :20])
    assert rule.seen(long, long.every)[16:].tolist() == torch.ones(4, 20).bool().tril(16).tolist()


@torch.no_grad()
def test_keys_that_are_hidden_states_lose_nothing() -> None:
    rule, state = given("hidden_keys")
    q, k = (split(rule, part, x_of(state)) for part in ("query", "key"))
    compare(rule, state, lambda r, s, h, i, j: causal_softmax(q, k, h, i, j))
    assert state.k.shape[-1] == D  # the state itself, the same for all heads
    assert torch.equal(state.k[0, 0], state.x[0])


@torch.no_grad()
def test_two_softmaxes_are_products_of_two_maps() -> None:
    rule, state = given("two_softmaxes")
    q, k = state.q.numpy()[0], state.k.numpy()[0]
    compare(
        rule,
        state,
        lambda r, s, h, i, j: softmax(q[h, i]) @ [softmax(k[h, :, c])[j] for c in range(WIDTH)],
    )


@torch.no_grad()
def test_positional_rows_are_those_of_other_tokens() -> None:
    rule, state = given("positional")
    other = rule.prepare(torch.randn_like(state.x))
    assert torch.equal(rule.rows(state, state.every), rule.rows(other, other.every))
    q, k = (numbers(rule, part).transpose(1, 0, 2) for part in ("of_query", "of_key"))
    compare(rule, state, lambda r, s, h, i, j: causal_softmax(q, k, h, i, j))
