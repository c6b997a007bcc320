"""The contract of metrics refuses each way to break it, and accepts metrics of interp."""

from __future__ import annotations

import pytest
import torch

import interp
from interp.core.errors import OptionError
from interp.heads.declaration import detector, weights
from interp.testing import ContractError, check_metric
from interp.testing.metric import (
    MODEL,
    check_batches,
    check_even_attention,
    repeated_halves,
)


@pytest.fixture(scope="module")
def random_heads() -> interp.Model:
    return interp.load(MODEL)


@detector
def undocumented(query, key):
    return key == query


@detector
def no_purpose(query, key):
    """Attend to itself."""
    return key == query


@detector
def ahead(query, key):
    """Attend to the next token.

    Not for: a test.
    """
    return key == query + 1


@detector
def nowhere(query, key):
    """Attend to nothing.

    Not for: a test.
    """
    return (key < 0) & (query < 0)


@detector
def dropped(query, key, *, back: int = 1):
    """Attend to the first token and drop its option.

    Not for: a test.
    """
    return (key == 0) & (query >= 0)


@detector
def texted(query, key, *, end: str = "first"):
    """Attend to one end of the row.

    Not for: a test.
    """
    return (key == 0) & (query >= 0) if end == "first" else key == query


@detector
def misdrawn(query, key):
    """Attend to itself.

    Not for: a test.

    >>> picture(misdrawn, "a b")
      a b
    a # #
    b . #
    """
    return key == query


@detector
def unlike_alone(query, key):
    """Attend to earlier tokens in whole prompts, and to itself in single pairs.

    Not for: a test.
    """
    return key <= query if getattr(query, "ndim", 0) else key == query


@weights(unit="none", low=0.0, high=0.5)
def out_of_range(model):
    """Score heads above the range.

    Not for: a test.
    """
    return {site: torch.ones(site.n_heads) for site in model.sites}


@weights(unit="none")
def empty(model):
    """Score no head.

    Not for: a test.
    """
    return {site: torch.full((site.n_heads,), torch.nan) for site in model.sites}


@weights(unit="none")
def meddling(model):
    """Change the model.

    Not for: a test.
    """
    with torch.no_grad():
        next(iter(model.module.parameters())).add_(1)
    return {site: torch.ones(site.n_heads) for site in model.sites}


@detector
def middle(query, key):
    """Attend to the middle of the batch's longest prompt.

    Not for: a test.
    """
    return (key <= query) & (key == key.max() // 2)


@pytest.mark.parametrize(
    ("metric", "contract"),
    [
        (undocumented, "undocumented must have a docstring"),
        (no_purpose, "must have a paragraph `Not for:`"),
        (ahead, "ahead must give finite scores|must name keys up to the query only"),
        (nowhere, "nowhere must give finite scores|must name a key of some query"),
        (dropped, "every option of dropped must change a score; back=2 changes none"),
        (misdrawn, "the example in the docstring of misdrawn must print what it shows"),
        (out_of_range, "in its declared range, 0.0 to 0.5; they are in 1 to 1"),
        (empty, "empty must give finite scores"),
        (meddling, "meddling must leave the model as it was; it changed"),
    ],
)
def test_a_broken_contract_is_one_sentence(metric, contract, random_heads) -> None:
    with pytest.raises(ContractError, match=contract) as raised:
        check_metric(metric, MODEL if metric is meddling else random_heads)
    assert "\n" not in str(raised.value)


def test_scores_that_depend_on_the_batch_are_refused(random_heads) -> None:
    with pytest.raises(ContractError, match="middle must score prompts in a batch as each alone"):
        check_batches(middle, random_heads, repeated_halves(random_heads))


def test_a_predicate_of_whole_arrays_is_refused() -> None:
    with pytest.raises(ContractError, match="even attention must score the share of visible keys"):
        check_even_attention(unlike_alone)


def test_metrics_of_interp_keep_it(random_heads) -> None:
    check_metric("previous_token", random_heads)
    check_metric("local_window:width=3", random_heads)


def test_a_text_option_needs_a_value_from_the_author(random_heads) -> None:
    with pytest.raises(OptionError, match=r"options=\{'end': ...\}"):
        check_metric(texted, random_heads)
    check_metric(texted, random_heads, options={"end": "own"})


def test_a_model_that_cannot_be_scored_is_not_a_broken_contract(random_heads) -> None:
    with pytest.raises(OptionError, match="give check_metric a model that source_start scores"):
        check_metric("source_start", random_heads)
