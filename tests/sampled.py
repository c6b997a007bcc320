"""Sweeps over many cases, of which `.ci/run` tries a sample, and `.ci/exhaustive` the others."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import pytest

EVERY = 3
Case = TypeVar("Case")


def sampled(cases: Iterable[Any], always: Collection[Any] = (), every: int = EVERY) -> list[Any]:
    """Mark cases as slow; all but each `every`-th and those of `always` as exhaustive too."""
    marked = []
    for number, case in enumerate(cases):
        values, marks, name = (
            (case.values, [*case.marks], case.id) if hasattr(case, "marks") else ((case,), [], None)
        )
        marks.append(pytest.mark.slow)
        if number % every and values[0] not in always:
            marks.append(pytest.mark.exhaustive)
        marked.append(pytest.param(*values, marks=marks, id=name))
    return marked


def thinned(cases: Sequence[Case]) -> Sequence[Case]:
    """Return every n-th case, n being what the caller of this process put into INTERP_EVERY."""
    return cases[:: int(os.environ.get("INTERP_EVERY", "1"))]
