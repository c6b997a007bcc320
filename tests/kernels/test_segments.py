"""Predicates that name segments: every backend against the definition, and what may go wrong."""

from __future__ import annotations

import pytest
import torch
from together import over

from interp_kernels import (
    Attention,
    Entropy,
    InvalidAttention,
    Mass,
    PredicateError,
    Segments,
    Targets,
    attention_statistics,
    reference,
)
from interp_kernels.cheap import targets as counted_on_tiles
from interp_kernels.found_targets import FoundTargets
from interp_kernels.predicate_runs import KeyRuns
from interp_kernels.targets import target_tile

NAMES = ("text", "image", "special")
LABELS = torch.tensor(
    [[2, 1, 1, 1, 0, 0, 2, 1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 2, 1, 1, 1, 1, 1, 1, 0, 0]]
)

PREDICATES = {
    "text to image": lambda q, k, tokens, segments: (
        (segments[q] == "text") & (segments[k] == "image")
    ),
    "not special": lambda q, k, tokens, segments: ~(segments[k] == "special") & (k < q),
    "elsewhere": lambda q, k, tokens, segments: segments[k] != "image",
    "either": lambda q, k, tokens, segments: (segments[k] == "image") | (segments[k] == "special"),
    "of the same": lambda q, k, tokens, segments: (segments[k] == segments[q]) & (k < q),
    "after it": lambda q, k, tokens, segments: (k >= 1) & (segments[k - 1] == "special"),
    "equal outside": lambda q, k, tokens, segments: (
        (tokens[k] == tokens[q]) & (k < q) & (segments[k] == "text")
    ),
    "by hand": lambda q, k, tokens, segments: segments.keys[k] == "image",
}
ASKED = [Mass(name, predicate) for name, predicate in PREDICATES.items()]


def named(call: Attention, labels: torch.Tensor = LABELS) -> Attention:
    return Attention(
        q=call.q,
        k=call.k,
        v=call.v,
        causal=call.causal,
        window=call.window,
        tokens=call.tokens,
        key_padding=call.key_padding,
        query_padding=call.query_padding,
        segments=Segments(NAMES, labels),
    )


@over("mask", ["none", "causal", "window", "left padding", "right padding"])
@over("beside", [[], [Entropy()]], ids=["alone", "in blocks"])
def test_every_backend_equals_the_definition(calls, conforms, mask, beside):
    conforms(named(calls.make(**calls.masks(mask))), [*ASKED, *beside], block=5)


def test_the_definition_is_the_sum_by_hand(calls):
    call = named(calls.make(sizes=(13, 13)))
    pattern = reference.pattern(call)
    found = attention_statistics(call, ASKED, backend="reference")
    image, text = LABELS == 1, LABELS == 0
    want = (pattern * image[:, None, None]).sum(-1) * text[:, None]
    torch.testing.assert_close(found["text to image"], want)
    same = LABELS[:, :, None] == LABELS[:, None]
    want = (pattern * same[:, None].tril(-1)).sum(-1)
    torch.testing.assert_close(found["of the same"], want)
    after = torch.nn.functional.pad(LABELS == 2, (1, 0))[:, :-1]
    want = (pattern * after[:, None, None]).sum(-1)
    torch.testing.assert_close(found["after it"], want)


def test_padding_on_the_left_shifts_segments_with_their_tokens(calls, backend):
    alone = named(calls.make(batch=1), LABELS[:1])
    pad = torch.nn.functional.pad
    real = pad(torch.ones(1, 13, dtype=torch.bool), (4, 0))
    rows = {name: pad(getattr(alone, name), (0, 0, 4, 0)) for name in "qkv"}
    shifted = Attention(
        **rows,
        causal=True,
        key_padding=real,
        query_padding=real,
        tokens=pad(alone.tokens, (4, 0), value=3),
        segments=Segments(NAMES, pad(LABELS[:1], (4, 0), value=1)),
    )
    expected = attention_statistics(alone, ASKED, backend=backend)
    found = attention_statistics(shifted, ASKED, backend=backend)
    for r in ASKED:
        torch.testing.assert_close(found[r][:, :, 4:], expected[r])
        assert found[r][:, :, :4].sum() == 0


def test_queries_and_keys_of_two_sequences_have_segments_of_their_own(calls, conforms):
    call = calls.make(sizes=(9, 13), causal=False, offset=0)
    of_queries = torch.tensor([[2, 0, 0, 0, 1, 1, 0, 0, 2]])

    def both(query, key, tokens, segments):
        return (segments.queries[query] == "text") & (segments.keys[key] == "image")

    call = Attention(
        q=call.q,
        k=call.k,
        v=call.v,
        causal=False,
        offset=0,
        segments=Segments(NAMES, LABELS, of_queries),
    )
    found = conforms(call, [Mass("both", both)])["both"]
    pattern = reference.pattern(call)
    want = (pattern * (LABELS == 1)[:, None, None]).sum(-1) * (of_queries == 0)[:, None]
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-6)
    one = Mass("one", lambda query, key, tokens, segments: segments[key] == "image")
    with pytest.raises(PredicateError, match=r"two sequences; write segments.keys\[key\]"):
        attention_statistics(call, [one])


def test_segments_have_runs_that_equal_the_tiles(calls):
    call = named(calls.make())
    asked = [Targets(name, predicate) for name, predicate in PREDICATES.items()]
    runs, listed = KeyRuns.of(call, asked)
    assert listed == [*range(len(asked))]
    counts = runs.counts(call)
    for column, targets in enumerate(asked):
        tile = target_tile(call, targets)
        held = torch.zeros_like(tile, dtype=torch.int)
        for row, prompt in enumerate(runs.prompts):
            for query in range(13):
                for first, end, which in prompt.runs[prompt.at[query] : prompt.at[query + 1]]:
                    held[row, query, first:end] += int(which == column)
        assert torch.equal(held, tile.int()), targets.name
        assert counts is not None
        assert torch.equal(counts[column], counted_on_tiles(call, targets)[:, :1])


def test_many_short_segments_are_left_to_the_tiles(calls):
    call = calls.make(sizes=(80, 80))
    asked = [Targets("image", lambda q, k, tokens, segments: segments[k] == "image")]
    for every, listed in ((2, []), (20, [0])):
        labels = (torch.arange(80) % every == 0).int()[None]
        assert KeyRuns.of(named(call, labels), asked)[1] == listed


def test_calls_of_equal_sizes_keep_targets_of_their_own(calls):
    """Two stacks of one batch, such as encoder and decoder, read other tokens and segments."""
    one = named(calls.make(heads=(2, 2)))
    other = Attention(
        q=one.q,
        k=one.k,
        v=one.v,
        causal=True,
        tokens=one.tokens.flip(-1),
        segments=Segments(NAMES, LABELS.flip(-1)),
    )
    found = FoundTargets(streamed=True)
    for name in ("equal outside", "text to image"):
        asked = [(Mass(name, PREDICATES[name]), Targets(f"{name} rows", PREDICATES[name]))]
        for call in (one, other, one):
            masses, counts = found.of(call, asked, None)
            assert torch.equal(counts[name][:, 0], counted_on_tiles(call, asked[0][1])[:, 0])
            value = attention_statistics(call, [masses[name]])[name]
            want = attention_statistics(call, [asked[0][0]], backend="reference")[name]
            torch.testing.assert_close(value, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        (
            lambda q, k, tokens, segments: segments[k] == "picture",
            "ValueError: unknown segment 'picture'; known: text, image, special",
        ),
        (lambda q, k, tokens, segments: segments[k] == 1, "TypeError: a segment was compared with"),
        (lambda q, k, tokens: k == q, "unexpected keyword argument 'segments'"),
    ],
)
def test_wrong_predicates_are_named(calls, backend, predicate, words):
    with pytest.raises(PredicateError, match=words):
        attention_statistics(named(calls.make()), [Mass("bad", predicate)], backend=backend)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            LABELS[:, :5],
            r"segments of each key are torch.int64 \[2, 5\]; expected .* \[2 or 1, 13\]",
        ),
        (LABELS.float(), "torch.float32"),
        (LABELS[0], r"\[13\]"),
        (LABELS.to("meta"), "segment of each key is a tensor without numbers"),
    ],
)
def test_segments_that_do_not_fit_are_refused(calls, labels, words):
    with pytest.raises(InvalidAttention, match=words):
        named(calls.make(), labels)
