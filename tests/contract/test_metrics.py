"""What every metric must do, asked of every file: a new one is covered unedited."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import interp
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.heads.engine import (
    ENGINES,
    _mean_over_rows,
    applies,
    attention_statistics_of,
    reduce_patterns,
)
from interp.heads.scoring import why_not
from interp.model.hooks.calls import RecordedCall
from interp.model.hooks.kernel_call import to_attention

# Named heads score a model only on a task that it can do: tests/circuits/test_named.py. Metrics of
# cross attention need a model that has it: tests/heads/alignment/test_source_metrics.py. Metrics
# between segments need prompts that hold these: tests/heads/segments/test_named_segments.py.
ELSEWHERE = ("roles", "cross", "segments")
ALL = sorted(name for name, entry in METRICS.items() if entry.group not in ELSEWHERE)
PATTERNED = [n for n in ALL if METRICS[n].kind in ("detector", "statistic")]
DETECTORS = [n for n in ALL if METRICS[n].kind == "detector"]
WITH_OPTIONS = [(n, o) for n in ALL for o in METRICS[n].options]


@pytest.fixture(scope="module")
def prompts(llama_model: interp.Model) -> Prompts:
    rng = np.random.default_rng(0)
    lengths = (11, 8, 14, 9)
    halves = [rng.integers(5, 15, n // 2 + 1).tolist() for n in lengths]
    return Prompts(tuple(tuple((h + h)[:n]) for h, n in zip(halves, lengths, strict=True)))


TESTS = Path(__file__).parents[1]
LABELLED = str(TESTS / "syntax" / "categories" / "texts.jsonl")
OTHER = {
    # a task: the one that the model answers best, or a file of needles
    "auto": str(TESTS / "heads" / "experiments" / "needles_of_ids.jsonl"),
    "both": "first",  # ends of a row of items
    "k": "q",  # keys, or queries
    # prompts with and without a marker, or a file of both kinds
    "marker": str(TESTS / "safety" / "safety_of_ids.jsonl"),
    # texts that a metric writes, or a file of labels
    "code": LABELLED, "people": LABELLED, "treebank": LABELLED,
    # another label of the same texts
    "operator": "name", "person": "place", "place": "person", "NOUN": "VERB", "mention": "place",
}  # fmt: skip


@pytest.fixture
def its_model(request) -> Callable[[str], interp.Model]:
    """A plain decoder, with a tokenizer for the metrics that need one."""

    def model(name: str) -> interp.Model:
        texted = "tokenizer" in METRICS.load(name).requires
        return request.getfixturevalue("texted_llama" if texted else "llama_model")

    return model


def off_default(value: object) -> object:
    match value:
        case bool():
            return not value
        # 64 rows of a pattern, 96 or 128 tokens of a text: limits that short prompts do not reach
        case int():
            return {64: 4, 96: 40, 128: 30}.get(value, value + 1)
        case float():
            return value / 2 + 0.25
        case str() if value in OTHER:
            return OTHER[value]
    raise AssertionError(f"say here how {value!r} is taken off its default")


@pytest.mark.parametrize("name", ALL)
def test_one_finite_score_per_head_and_inputs_untouched(name, its_model, prompts) -> None:
    llama_model = its_model(name)
    before = {k: v.clone() for k, v in llama_model.module.state_dict().items()}
    config = str(llama_model.config)
    table = METRICS.load(name)(llama_model, prompts, null="none")
    frame = table.to_pandas()
    bound = METRICS.load(name).bind()
    scored = [
        s for s in llama_model.sites if not bound.patterned() or applies(bound, s, llama_model)
    ]
    assert len(frame) == sum(s.n_heads for s in scored) > 0
    if name == "retrieval":  # a random model answers nothing: no score, and the reason
        [made] = table.provenance.values()
        assert "the model answers no needle" in made["headline"]
        assert (frame["n"] == 0).all()
        frame = METRICS.load(name)(llama_model, prompts, null="none", task="ids").to_pandas()
    assert np.isfinite(frame["score"]).all()
    entry = METRICS[name]
    assert entry.low is None or (frame["score"] >= entry.low - 1e-6).all()
    assert entry.high is None or (frame["score"] <= entry.high + 1e-6).all()
    assert all(torch.equal(v, before[k]) for k, v in llama_model.module.state_dict().items())
    assert str(llama_model.config) == config


def scores(model, name, prompts, **options) -> np.ndarray:
    table = METRICS.load(name)(model, prompts, null="none", **options)
    return table.to_pandas()["score"].to_numpy()


@pytest.mark.parametrize("name", PATTERNED)
def test_prompts_score_in_a_batch_as_they_do_alone(name, llama_model, prompts) -> None:
    bound = METRICS.load(name).bind()
    together = reduce_patterns(llama_model, prompts, [bound], batch_size=4)[0]
    alone = reduce_patterns(llama_model, prompts, [bound], batch_size=1)[0]
    for site in llama_model.sites:
        torch.testing.assert_close(
            together.of(site), alone.of(site), rtol=0, atol=2e-6, equal_nan=True
        )


@pytest.mark.parametrize("name", PATTERNED)
def test_padding_changes_nothing(name, llama_model, prompts) -> None:
    bound = METRICS.load(name).bind()
    right, left = (
        reduce_patterns(llama_model, Prompts(prompts.ids, padding=side), [bound], batch_size=4)[0]
        for side in ("right", "left")
    )
    for site in llama_model.sites:
        torch.testing.assert_close(right.of(site), left.of(site), rtol=0, atol=5e-6, equal_nan=True)


@pytest.mark.parametrize("name", PATTERNED)
def test_streamed_and_fused_equal_stored(name, llama_model, prompts) -> None:
    bound = METRICS.load(name).bind()
    stored, *others = (reduce_patterns(llama_model, prompts, [bound], engine=e)[0] for e in ENGINES)
    assert len(others) == 2
    for other in others:
        for site in llama_model.sites:
            torch.testing.assert_close(
                stored.of(site), other.of(site), rtol=2e-5, atol=2e-6, equal_nan=True
            )


OWN_TESTS = {
    ("mask_rank", "token"),
    *(("pooled_key_rank", option) for option in ("n", "longest", "files")),
    ("segment_mass", "segment"),  # a prompt of text has one segment
    ("segment_mass", "queries"),
    ("trained_gates", "relative"),  # a final norm without gain: the mean square is 1
}


@pytest.fixture(scope="module")
def plain_scores() -> dict[str, np.ndarray]:
    """Scores of metrics without options, as tests of their options need them."""
    return {}


@pytest.mark.parametrize(("name", "option"), WITH_OPTIONS)
def test_no_option_is_dropped(name, option, its_model, prompts, plain_scores) -> None:
    llama_model = its_model(name)
    if (name, option) in OWN_TESTS:
        pytest.skip("a test of its own, in tests/heads/geometry or tests/heads/kv_cache")
    default = METRICS.load(name).options[option].default
    changed = {option: off_default(default)}
    table = METRICS.load(name)(llama_model, prompts, null="none", **changed)
    assert list(table.metrics) == [f"{name}:{option}={off_default(default)}"]
    if name not in plain_scores:
        plain_scores[name] = scores(llama_model, name, prompts)
    assert not np.allclose(plain_scores[name], table.to_pandas()["score"], atol=1e-9)


def ideal(name: str, tokens: list[int]) -> torch.Tensor:
    """The pattern of a head that attends to its targets evenly, and to itself where it has none."""
    at = torch.arange(len(tokens))
    target = torch.as_tensor(
        METRICS.load(name).predicate(at[:, None], at[None, :], torch.tensor(tokens))
    )
    target = target.expand(len(tokens), len(tokens)) & (at[None, :] <= at[:, None])
    pattern = torch.where(
        target.any(1, keepdim=True), target.double(), torch.eye(len(tokens)).double()
    )
    return pattern / pattern.sum(1, keepdim=True)


@pytest.mark.parametrize("name", DETECTORS)
def test_an_ideal_head_scores_one_and_looks_only_back(name, llama_model) -> None:
    tokens = [3, 7, 5, 9, 3, 7, 5, 9, 3, 7]
    at = torch.arange(len(tokens))
    target = torch.as_tensor(
        METRICS.load(name).predicate(at[:, None], at[None, :], torch.tensor(tokens))
    )
    assert not (target.expand(10, 10) & (at[None, :] > at[:, None])).any()
    assert target.any()
    pattern = ideal(name, tokens)[None, None]
    assert score_of(name, pattern, tokens, llama_model) == pytest.approx(1.0, abs=1e-12)


def score_of(name: str, pattern: torch.Tensor, tokens: list[int], model: interp.Model) -> float:
    v = torch.zeros(1, 1, len(tokens), 2)
    hidden = torch.ones_like(pattern).tril() == 0
    logits = pattern.clamp_min(1e-30).log().masked_fill(hidden, torch.finfo(torch.float64).min)
    call = RecordedCall(v, v, logits, pattern)
    real = torch.ones(1, len(tokens), dtype=torch.bool)
    mass, targets = METRICS.load(name).bind().reductions()
    attention = to_attention(call, real, torch.tensor([tokens]))
    found = attention_statistics_of(call, attention, [mass, targets], "stored")
    return float(_mean_over_rows(found[mass.name], found[targets.name], real, 1))


@pytest.mark.parametrize("name", DETECTORS)
def test_uniform_attention_scores_the_share_of_keys_that_are_targets(name, llama_model) -> None:
    tokens = [3, 7, 5, 9, 3, 7, 5, 9, 3, 7]
    n = len(tokens)
    pattern = torch.ones(n, n).tril().double()
    pattern = (pattern / pattern.sum(1, keepdim=True))[None, None]
    shares = []
    for query in range(n):
        hits = sum(
            bool(METRICS.load(name).predicate(np.int64(query), np.int64(key), np.array(tokens)))
            for key in range(query + 1)
        )
        if hits:
            shares.append(hits / (query + 1))
    assert score_of(name, pattern, tokens, llama_model) == pytest.approx(
        math.fsum(shares) / len(shares), abs=1e-12
    )


def test_every_metric_applies_to_a_plain_decoder(its_model) -> None:
    assert [n for n in ALL if why_not(its_model(n), METRICS.load(n).bind())] == []
