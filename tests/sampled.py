"""What `.ci/run` tries a part of, and `.ci/exhaustive` all: the second tier, sweeps over cases."""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

ROOT = Path(__file__).parents[1]
PARTS, EVEN = 5, 124
"""Parts of the test files, and a start of their checksums with which parts take about as long."""
EVERY = 3
Case = TypeVar("Case")


def part_of(path: Path) -> int:
    """Return the part of a test file, which depends on its name alone."""
    return zlib.crc32(path.relative_to(ROOT).as_posix().encode(), EVEN) % PARTS


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
