"""The mutants of benchmarks/mutants.py can be made: their texts and tests are there."""

from __future__ import annotations

import re
from pathlib import Path

from together import over

from benchmarks.mutants import MUTANTS, Mutant, occurrences

ROOT = Path(__file__).parents[2]


@over("one", MUTANTS, ids=lambda one: one.name)
def test_its_text_is_found_once_and_its_tests_exist(one: Mutant) -> None:
    assert occurrences(one) == 1
    assert one.new != one.old
    for test in one.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not name or re.search(rf"^def {re.escape(name)}\(", text, re.MULTILINE), test


def test_there_are_twenty_of_different_names() -> None:
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 20
