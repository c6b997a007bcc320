"""What every attribution method must do, asked of every file: a new one is covered unedited."""

from __future__ import annotations

import pytest
from together import over

from interp.core.registry import ATTRIBUTION_METHODS
from interp.testing.attribution_method import check_needs, check_repeatable, check_token_scores

ALL = sorted(ATTRIBUTION_METHODS)


@over("name", ALL)
def test_one_finite_score_per_token_and_the_model_untouched(name, llama_model) -> None:
    check_token_scores(name, llama_model)


@over("name", ALL)
def test_the_scores_are_the_same_twice(name, llama_model) -> None:
    check_repeatable(name, llama_model)


@pytest.mark.parametrize("name", ALL)
def test_it_needs_no_more_than_it_declares(name, llama_model) -> None:
    check_needs(name, llama_model)
