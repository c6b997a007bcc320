"""What every circuit method must do, asked of every file: a new one is covered unedited."""

from __future__ import annotations

import pytest

import interp
from interp.circuits.contrast import ContrastTask
from interp.circuits.tasks import make_contrast
from interp.core.registry import CIRCUIT_METHODS
from interp.testing.circuit_method import check_levels, check_node_scores

ALL = sorted(CIRCUIT_METHODS)
PLANTED = "planted:bystander"
FAST = {
    "epochs": 30,
    "repeats": 1,
    "permutations": 20,
    "steps": 5,
    "restarts": 1,
}  # of methods that have such options


@pytest.fixture(scope="module")
def bystander_contrast(planted_bystander: interp.Model) -> ContrastTask:
    return make_contrast(planted_bystander, PLANTED, n=8)


@pytest.mark.parametrize("name", ALL)
def test_one_score_per_node_and_the_model_untouched(
    name, planted_bystander, bystander_contrast
) -> None:
    fast = {k: v for k, v in FAST.items() if k in CIRCUIT_METHODS[name].options}
    check_node_scores(name, planted_bystander, bystander_contrast, **fast)


@pytest.mark.parametrize("name", ALL)
def test_levels_are_those_declared(name) -> None:
    check_levels(name)


def test_a_level_that_is_not_declared_is_named_in_the_error() -> None:
    with pytest.raises(interp.InterpError, match="screen_verify scores heads, not edges"):
        CIRCUIT_METHODS.load("screen_verify").check("edge", {})
