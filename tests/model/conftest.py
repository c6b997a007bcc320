"""One loaded model per family and attention for all tests of the model layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import zoo

import interp

Loaded = Callable[..., "interp.Model"]


@cache
def _loaded(name: str, attention: str | None) -> interp.Model:
    family = zoo.FAMILIES[name]
    return interp.load(family.model(attention or family.attentions[-1]), name=name)


@pytest.fixture(scope="session")
def loaded() -> Loaded:
    """`loaded("llama")` or `loaded("llama", "eager")`: look, do not change."""

    def get(name: str, attention: str | None = None) -> interp.Model:
        return _loaded(name, attention)

    return get
