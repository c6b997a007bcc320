"""Zoo models whose norms and biases are random, so that folding them wrongly shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import zoo
from heads.weights.perturbed import perturb

import interp

Perturbed = Callable[[str], "interp.Model"]


@cache
def _perturbed(name: str) -> interp.Model:
    family = zoo.FAMILIES[name]
    return interp.load(perturb(family.build(family.attentions[0])), name=name)


@pytest.fixture(scope="session")
def perturbed() -> Perturbed:
    """`perturbed("llama")`: look, do not change."""
    return _perturbed
