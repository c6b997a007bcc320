"""Predicates over positions: where they are asked, in which coordinates, and what may go wrong."""

from __future__ import annotations

import pytest
import torch
from together import over

from interp_kernels import (
    Attention,
    Entropy,
    KeySetMass,
    Mass,
    PairMass,
    PredicateError,
    Targets,
    attention_statistics,
)
from interp_kernels.targets import target_entries, target_pairs


def induction(query, key, tokens):
    return (key >= 1) & (key <= query) & (tokens[key - 1] == tokens[query])


def previous(query, key, tokens):
    return key == query - 1


def first(query, key, tokens):
    return key == 0


ASKED = [
    Mass("induction", induction),
    Mass("previous", previous),
    Mass("first", first),
    Mass("early", lambda query, key, tokens: key < 2),
    Targets("count", induction),
    KeySetMass("set", (0, 1)),
    PairMass("pairs", torch.tensor([[0, 5, 2], [0, 3, 0], [0, 5, 2]])),
]


def padded(call, left, right):
    """The same prompt with padding around it."""

    def pad(x, axis):
        shape = [0] * (2 * x.ndim)
        shape[2 * (x.ndim - 1 - axis)] = left
        shape[2 * (x.ndim - 1 - axis) + 1] = right
        return torch.nn.functional.pad(x, shape, value=3)

    real = torch.zeros(1, call.q.shape[2] + left + right, dtype=torch.bool)
    real[:, left : left + call.q.shape[2]] = True
    return {
        "q": pad(call.q, 2),
        "k": pad(call.k, 2),
        "v": pad(call.v, 2),
        "tokens": pad(call.tokens, 1),
        "key_padding": real,
        "query_padding": real,
    }


@over("causal", [True, False])
@over("left", [0, 1, 17])
@over("asked", [ASKED, [*ASKED, Entropy()]], ids=["looked up", "in blocks"])
def test_padding_changes_nothing(calls, backend, left, causal, asked):
    """Positions are those of the prompt, wherever it lies; 17 is longer than the prompt."""
    alone = calls.make(batch=1, causal=causal, sizes=(12, 12))
    call = Attention(**padded(alone, left, 3), causal=causal)
    expected = attention_statistics(alone, asked, backend=backend)
    found = attention_statistics(call, asked, backend=backend)
    for r in asked:
        inner = found[r][:, :, left : left + 12]
        torch.testing.assert_close(inner, expected[r], msg=lambda m, r=r: f"{r.name}: {m}")
        assert found[r].sum() == pytest.approx(inner.sum().item()), f"{r.name} counts padding"
        assert r.name == "first" or expected[r].sum() > 0


def test_prompts_of_different_lengths_score_as_each_alone(calls, backend):
    asked = [*ASKED, Entropy()]
    alone = [calls.make(batch=1, sizes=(n, n), seed=n) for n in (12, 7, 12)]
    parts = [padded(call, 12 - call.q.shape[2], 0) for call in alone]
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    found = attention_statistics(Attention(**joined, causal=True), asked, backend=backend, block=5)
    for row, call in enumerate(alone):
        expected = attention_statistics(call, asked, backend=backend)
        for r in asked[:-2]:
            inner = found[r][row, :, 12 - call.q.shape[2] :]
            torch.testing.assert_close(inner, expected[r][0], msg=lambda m, r=r: f"{r.name}: {m}")


def test_explicit_start_counts_positions_from_there(calls, backend):
    call = calls.make(start=(0, 5), sizes=(9, 9))
    found = attention_statistics(call, [Mass("first", first), Entropy()], backend=backend)
    pattern = attention_statistics(call, [Entropy()], backend="reference")
    assert found["first"][1, :, :5].abs().sum() == 0
    assert (found["first"][1, :, 5:] > 0).all()
    torch.testing.assert_close(found["entropy"], pattern["entropy"])


@over("density", [0.0, 0.01, 0.3, 1.0])
@over("beside", [[], [Entropy()]])
def test_rare_and_common_targets_agree_with_the_definition(calls, conforms, density, beside):
    """Rare ones are looked up from the log-sum-exp, common ones summed over tiles."""
    table = torch.rand(40, 40, generator=torch.Generator().manual_seed(1)) < density
    anywhere = Mass("anywhere", lambda query, key, tokens: table[query, key])
    call = calls.make(sizes=(40, 40), widths=(8, 8))
    conforms(call, [anywhere, *beside])


def test_pairs_are_those_the_predicate_holds_for(calls):
    call = calls.make(sizes=(30, 30))
    pairs = target_pairs(call, Mass("induction", induction), most=10_000, tile=64)
    assert pairs is not None
    looped = [
        [b, i, j]
        for b in range(2)
        for i in range(30)
        for j in range(1, i + 1)
        if call.tokens[b, j - 1] == call.tokens[b, i]
    ]
    assert pairs.tolist() == looped
    assert len(looped) > 50
    assert target_pairs(call, Mass("induction", induction), most=len(looped) - 1) is None
    near = calls.make(sizes=(30, 30), window=6)
    pairs = target_pairs(near, Mass("induction", induction), most=10_000, tile=64)
    within = [pair for pair in looped if pair[2] > pair[1] - 6]
    assert [pair for pair in pairs.tolist() if pair[2] > pair[1] - 6] == within


@pytest.mark.parametrize("offset", [0, 5])
def test_listed_pairs_are_positions_of_the_prompts(calls, backend, offset):
    """Found by a predicate and given back as `PairMass`, they are the mass of that predicate."""
    call = calls.make(start=(0, 6), sizes=(20, 20 + offset))
    mass = Mass("induction", induction)
    pairs, entries = (
        listing(call, mass, most=10_000) for listing in (target_pairs, target_entries)
    )
    assert pairs is not None
    assert entries is not None
    shift = torch.tensor([[0, offset, 0], [0, offset - 6, -6]])[entries[:, 0]]
    assert torch.equal(pairs, entries + shift)
    found = attention_statistics(call, [mass, PairMass("pairs", pairs)], backend=backend)
    assert found["induction"][1].sum() > 0.5
    torch.testing.assert_close(found["pairs"], found["induction"])


def test_a_predicate_is_never_asked_before_the_start(calls, backend):
    asked_keys = []

    def watch(query, key, tokens):
        asked_keys.append((int(query.min()), int(key.min()), len(tokens)))
        return key == query

    call = calls.make(start=(4, 4), sizes=(9, 9))
    attention_statistics(call, [Mass("own", watch), Entropy()], backend=backend)
    assert asked_keys
    assert all(q >= 0 and k >= 0 and n == 5 for q, k, n in asked_keys)


def boom(query, key, tokens):
    raise ValueError("no such token")


@over(
    ("predicate", "words"),
    [
        (boom, "predicate 'bad' raised ValueError: no such token"),
        (lambda query, key: key == query, "raised TypeError"),
        (lambda query, key, tokens: tokens[key, 0] == 1, "raised IndexError"),
        (lambda query, key, tokens: tokens[key] == tokens[10**9], "at position 1,000,000,000, whi"),
        (lambda query, key, tokens: tokens[key] == tokens[-(10**9)], "which no prompt has; give"),
        (lambda query, key, tokens: (key == query)[..., None], r"returned shape \[9, 9, 1\]"),
        (lambda query, key, tokens: (key == query)[:, :2], r"returned shape \[9, 2\].*\[9, 9\]"),
        (lambda query, key, tokens: key - query, "returned torch.int64; expected a bool"),
        (lambda query, key, tokens: True, "returned bool; expected a bool tensor"),
    ],
)
@over("kind", [Mass, Targets])
def test_bad_predicates_are_named(calls, backend, predicate, words, kind):
    call = calls.make(sizes=(9, 9))
    for beside in ([], [Entropy()]):
        with pytest.raises(PredicateError, match=words):
            attention_statistics(call, [kind("bad", predicate), *beside], backend=backend)


def test_a_fixed_position_beyond_a_short_prompt_equals_nothing(calls, backend):
    call = calls.make(sizes=(9, 9))
    asked = Mass("later", lambda query, key, tokens: tokens[key] == tokens[50])
    assert not attention_statistics(call, [asked], backend=backend)[asked].any()


def test_a_predicate_that_needs_tokens_says_so(backend):
    x = torch.randn(1, 1, 4, 4)
    call = Attention(q=x, k=x, v=x, causal=True)
    with pytest.raises(PredicateError, match=r"TypeError.*no tokens"):
        attention_statistics(call, [Mass("induction", induction)], backend=backend)
