"""What every metric must do, asked of every file: a new one is covered unedited."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampled import sampled

import interp
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.heads.declaration import bound
from interp.heads.scoring import why_not
from interp.testing.metric import (
    check_batches,
    check_engines,
    check_even_attention,
    check_ideal_head,
    check_option,
    check_padding,
    check_scores,
    other_value,
    repeated_halves,
    scores_per_head,
)

# Named heads score a model only on a task that it can do: tests/circuits/test_named.py. Metrics of
# cross attention need a model that has it: tests/alignment/test_source_metrics.py. Metrics
# between segments need prompts that hold these: tests/heads/segments/test_named_segments.py.
ELSEWHERE = ("roles", "cross", "segments")
ALL = sorted(name for name, entry in METRICS.items() if entry.group not in ELSEWHERE)
PATTERNED = [n for n in ALL if METRICS[n].kind in ("detector", "statistic")]
DETECTORS = [n for n in ALL if METRICS[n].kind == "detector"]
WITH_OPTIONS = [(n, o) for n in ALL for o in METRICS[n].options]


@pytest.fixture(scope="module")
def prompts(llama_model: interp.Model) -> Prompts:
    return repeated_halves(llama_model)


TESTS = Path(__file__).parents[1]
LABELLED = str(TESTS / "syntax" / "categories" / "texts.jsonl")
OTHER = {
    # a task: the one that the model answers best, or a file of needles
    "auto": str(TESTS / "heads" / "experiments" / "needles_of_ids.jsonl"),
    "both": "first",  # ends of a row of items
    "k": "q",  # keys, or queries
    "token": "token_before",  # what matches the query: the key, or the token before it
    "repeats": "single_key",  # prompts of a loss
    # prompts with and without a marker, or a file of both kinds
    "marker": str(TESTS / "safety" / "safety_of_ids.jsonl"),
    # texts that a metric writes, or a file of labels
    "code": LABELLED,
    "people": LABELLED,
    "treebank": LABELLED,
    # another label of the same texts
    "operator": "name",
    "person": "place",
    "place": "person",
    "NOUN": "VERB",
    "mention": "place",
}


@pytest.fixture
def its_model(request) -> Callable[[str], interp.Model]:
    """A plain decoder, with a tokenizer for the metrics that need one."""

    def model(name: str) -> interp.Model:
        texted = "tokenizer" in METRICS.load(name).requires
        return request.getfixturevalue("texted_llama" if texted else "llama_model")

    return model


def off_default(value: Any) -> Any:
    match value:
        # 64 rows of a pattern, 96 or 128 tokens of a text: limits that short prompts do not reach
        case 64 | 96 | 128:
            return {64: 4, 96: 40, 128: 30}[value]
        case str() if value in OTHER:
            return OTHER[value]
    found = other_value(value)
    assert found is not None, f"say here how {value!r} is taken off its default"
    return found


@pytest.mark.parametrize("name", ALL)
def test_one_finite_score_per_head_and_inputs_untouched(name, its_model, prompts) -> None:
    model = its_model(name)
    if name == "retrieval":  # a random model answers nothing: no score, and the reason
        table = METRICS.load(name)(model, prompts, null="none")
        [made] = table.provenance.values()
        assert "the model answers no needle" in made["headline"]
        assert (table.to_pandas()["n"] == 0).all()
        name = "retrieval:task=ids"
    check_scores(name, model, prompts)


@pytest.mark.parametrize("name", PATTERNED)
def test_prompts_score_in_a_batch_as_they_do_alone(name, llama_model, prompts) -> None:
    check_batches(name, llama_model, prompts)


@pytest.mark.parametrize("name", PATTERNED)
def test_padding_changes_nothing(name, llama_model, prompts) -> None:
    check_padding(name, llama_model, prompts)


@pytest.mark.parametrize("name", PATTERNED)
def test_streamed_and_fused_equal_stored(name, llama_model, prompts) -> None:
    check_engines(name, llama_model, prompts)


@pytest.fixture(scope="module")
def double_llama(llama_model) -> interp.Model:
    """The same model in float64."""
    return interp.load(deepcopy(llama_model.module).double(), name="llama")


@pytest.mark.parametrize(
    "name", sampled(n for n in ALL if "tokenizer" not in METRICS.load(n).requires)
)
def test_a_score_is_not_decided_by_rounding(name, llama_model, double_llama, prompts) -> None:
    """In float64 it is the same: no score may depend on what float32 cannot tell apart."""
    metric = {"retrieval": "retrieval:task=ids"}.get(name, name)
    found, exact = (scores_per_head(metric, m, prompts) for m in (llama_model, double_llama))
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)


OWN_TESTS = {
    ("mask_rank", "token"),
    *(("pooled_key_rank", option) for option in ("n", "max_length", "files")),
    ("segment_mass", "segment"),  # a prompt of text has one segment
    ("segment_mass", "queries"),
    ("trained_gates", "relative"),  # a final norm without gain: the mean square is 1
}


# Metrics that train, or that try their tasks first: the same options on a smaller run. The
# share of answers that counts needs the metric as it is.
QUICK = {
    "trained_gates": "trained_gates:task=ids,steps=4,needles=4",
    **{
        name: f"{name}:task=ids,needles=2"
        for name in ("retrieval", "qr_retrieval", "evaluator_mass")
    },
}


@pytest.fixture(scope="module")
def plain_scores() -> dict[str, np.ndarray]:
    """Scores of metrics without options, as tests of their options need them."""
    return {}


@pytest.mark.parametrize(("name", "option"), WITH_OPTIONS)
def test_no_option_is_dropped(name, option, its_model, prompts, plain_scores) -> None:
    model = its_model(name)
    if (name, option) in OWN_TESTS:
        pytest.skip("a test of its own, in tests/heads/geometry or tests/cache")
    metric: Any = name if option == "success" else QUICK.get(name, name)
    metric = metric.replace("task=ids,", "") if option == "task" else metric
    changed = off_default(dict(bound(metric).options)[option])
    if metric not in plain_scores:
        plain_scores[metric] = scores_per_head(metric, model, prompts)
    check_option(metric, model, prompts, option, changed, plain_scores[metric])


@pytest.mark.parametrize("name", DETECTORS)
def test_an_ideal_head_scores_one_and_looks_only_back(name) -> None:
    check_ideal_head(name)


@pytest.mark.parametrize("name", DETECTORS)
def test_uniform_attention_scores_the_share_of_keys_that_are_targets(name) -> None:
    check_even_attention(name)


def test_every_metric_applies_to_a_plain_decoder(its_model) -> None:
    assert [n for n in ALL if why_not(its_model(n), METRICS.load(n).bind())] == []
