"""Runs of keys read from predicates, against the tiles of the same predicates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from interp.core.registry import METRICS
from interp_kernels import attention_statistics
from interp_kernels.cheap import targets as counted_on_tiles
from interp_kernels.predicate_runs import KeyRuns, runs_of
from interp_kernels.problem import Attention
from interp_kernels.reductions import Entropy, Mass, Output, Targets
from interp_kernels.targets import target_tile

DETECTORS = [
    bound
    for bound in (METRICS.parse(n) for n, entry in METRICS.items() if entry.group == "detectors")
    if bound.analysis.kind == "detector"
]
PREDICATES: dict[str, Callable] = {
    "near": lambda query, key, tokens: (query - key).abs() <= 2,
    "far": lambda query, key, tokens: abs(key - query) > 3,
    "three apart": lambda query, key, tokens: abs(key - query) == 3,
    "not three apart": lambda query, key, tokens: abs(query - key) != 3,
    "outside": lambda query, key, tokens: ~((key < query) & (key > query - 4)) | (query == key),
    "a token": lambda query, key, tokens: (tokens[key] == 3) & (key < query),
    "a key": lambda query, key, tokens: 5 == key,  # noqa: SIM300 - Python turns it around
    "rows": lambda query, key, tokens: (tokens[query] == 2) & (key != query),
    "a share": lambda query, key, tokens: key < query // 3 * 2,
    "modulo": lambda query, key, tokens: key < query % 5 - 1,
    "turned": lambda query, key, tokens: (3 - query) < -key,
    "before the first": lambda query, key, tokens: tokens[key - 2] == tokens[query],
    "after the last": lambda query, key, tokens: tokens[key + 2] == tokens[query],
    "outside of both": lambda query, key, tokens: tokens[key - 1] == tokens[query - 1],
    "previous token": lambda query, key, tokens: (
        (tokens[key] == tokens[query - 1]) & (key < query) & ((key < 3) | (key > 8))
    ),
    "none": lambda query, key, tokens: (key < query) & (key > query),
    "all": lambda query, key, tokens: (key >= 0) | (key < query),
}
WITHOUT: dict[str, Callable] = {
    "even keys": lambda query, key, tokens: key % 2 == 0,
    "other tokens": lambda query, key, tokens: tokens[key] != tokens[query],
    "a function of torch": lambda query, key, tokens: torch.abs(query - key) < 2,
    "a fraction": lambda query, key, tokens: key < 0.5 * query,
    "either": lambda query, key, tokens: (tokens[key] == tokens[query]) | (key == 0),
    "no set": lambda query, key, tokens: key - query,
}


def call(kind: str, queries: int = 20, seed: int = 0, kinds: int = 5) -> Attention:
    torch.manual_seed(seed)
    batch, keys = 3, queries
    padding = torch.ones(batch, keys, dtype=torch.bool)
    given: dict = {"causal": kind != "encoder"}
    if kind == "window":
        given["window"] = 5
    if kind == "padded":
        padding[1, :6], padding[2, -4:] = False, False
        given |= {"key_padding": padding, "query_padding": padding}
    if kind == "cached":
        queries -= 7
    shape = (batch, 4, queries, 8)
    tokens = torch.randint(0, kinds, (batch, keys))
    return Attention(
        q=torch.randn(shape),
        k=torch.randn(batch, 2, keys, 8),
        v=torch.randn(batch, 2, keys, 8),
        tokens=tokens,
        **given,
    )


KINDS = ["encoder", "causal", "window", "padded", "cached"]


def held(runs: KeyRuns, column: int, like: torch.Tensor) -> torch.Tensor:
    found = torch.zeros_like(like, dtype=torch.int)
    for row, prompt in enumerate(runs.prompts):
        for query in range(like.shape[1]):
            for first, end, which in prompt.runs[prompt.at[query] : prompt.at[query + 1]]:
                if which == column:
                    found[row, query, first:end] += 1
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_runs_hold_exactly_where_the_tiles_do(kind) -> None:
    attention = call(kind)
    asked = [bound.reductions()[1] for bound in DETECTORS]
    asked += [Targets(name, predicate) for name, predicate in PREDICATES.items()]
    runs, listed = KeyRuns.of(attention, asked)
    assert [asked[i].name for i in listed] == [r.name for r in asked]
    counts = runs.counts(attention)
    for column, targets in enumerate(asked):
        tile = target_tile(attention, targets).expand(3, -1, -1)
        assert torch.equal(held(runs, column, tile), tile.int()), targets.name
        assert counts is not None
        assert torch.equal(counts[column], counted_on_tiles(attention, targets)[:, :1])


@pytest.mark.parametrize("kind", KINDS)
def test_no_position_outside_of_the_prompt_matches(kind) -> None:
    """Each entry by hand, of one prompt at a time; padding is outside, on either side."""
    attention = call(kind)
    assert attention.tokens is not None
    there = torch.ones_like(attention.tokens, dtype=torch.bool)
    there = there if attention.key_padding is None else attention.key_padding
    for key_by, query_by in ((-2, 0), (2, 0), (-1, -1), (1, 1), (0, 30)):

        def equal_tokens(query, key, tokens, key_by=key_by, query_by=query_by):
            return tokens[key + key_by] == tokens[query + query_by]

        tile = target_tile(attention, Targets("equal", equal_tokens)).expand(3, -1, -1)
        for row, ids in enumerate(attention.tokens.tolist()):
            inside = there[row].nonzero()[:, 0].tolist()
            for query in range(attention.q.shape[2]):
                for key in inside:
                    a, b = key + key_by, query + attention.offset + query_by
                    equal = a in inside and b in inside and ids[a] == ids[b]
                    if query + attention.offset in inside:
                        assert bool(tile[row, query, key]) == equal, (key_by, query_by)


def test_what_has_no_runs_is_left_to_the_tiles() -> None:
    attention = call("causal")
    asked = [Targets(name, predicate) for name, predicate in {**WITHOUT, **PREDICATES}.items()]
    _, listed = KeyRuns.of(attention, asked)
    assert listed == [*range(len(WITHOUT), len(asked))]


def test_too_many_equal_tokens_are_left_to_the_tiles() -> None:
    def same(query, key, tokens):
        return tokens[key] == tokens[query]

    equal, distinct = np.zeros(500, np.int64), np.arange(500)
    assert runs_of(same, range(500), 500, equal)[0] is None
    found, reads = runs_of(same, range(500), 500, distinct)
    assert found is not None
    assert reads
    assert found.tolist() == [[i, i, i + 1] for i in range(500)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_pass_sums_runs_like_the_definition(kind) -> None:
    attention = call(kind, queries=300, kinds=40)
    asked = [bound.reductions()[0] for bound in DETECTORS]
    asked += [Mass("even keys", WITHOUT["even keys"])]
    runs, listed = KeyRuns.of(attention, [Targets(m.name, m.predicate) for m in asked])
    assert len(listed) == len(DETECTORS)
    by_runs = [Mass(m.name, m.predicate, runs, i) for i, m in enumerate(asked[:-1])]
    expected = attention_statistics(attention, asked, backend="reference")
    for some in ([*by_runs, asked[-1]], [by_runs[3], asked[-1], by_runs[1]], by_runs):
        found = attention_statistics(attention, [*some, Entropy(), Output()], backend="cpu")
        for mass in some:
            torch.testing.assert_close(found[mass.name], expected[mass.name], rtol=1e-5, atol=1e-6)


def test_predicates_that_read_no_tokens_are_evaluated_once_for_all_prompts() -> None:
    calls = []

    def near(query, key, tokens):
        calls.append("near")
        return key == query

    def same(query, key, tokens):
        calls.append("same")
        return tokens[key] == tokens[query]

    KeyRuns.of(call("causal"), [Targets("near", near), Targets("same", same)])
    assert (calls.count("near"), calls.count("same")) == (1, 3)


def test_cost_grows_with_the_length_and_not_with_its_square() -> None:
    """The runs of 64k tokens need less than one byte per (query, key), by a factor of a hundred."""
    n = 1 << 16
    tokens = np.random.default_rng(0).integers(0, 20_000, n)
    size = 0
    for bound in DETECTORS:
        found, _ = runs_of(bound.reductions()[1].predicate, range(n), n, tokens)
        assert found is not None
        size += found.nbytes
    assert size < n * n / 100
