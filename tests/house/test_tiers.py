"""The first tier reaches what all tests reach; the list of the others names tests that exist."""

from __future__ import annotations

import ast
from functools import cache

import numpy as np
from house.tiers import ROOT, first_tier, later, listed, mutants_tests


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_each_listed_test_exists_and_no_mutant_needs_it() -> None:
    for test in listed():
        path, _, name = test.partition("[")[0].partition("::")
        assert name in functions(path), test
    assert mutants_tests().isdisjoint(listed())


def test_the_first_tier_is_cheap_and_reaches_every_branch() -> None:
    reached = {"a": [0, 1, 2, 3], "b[x]": [0, 1], "b[y]": [2], "c": [3], "d": [3], "e": []}
    seconds = {"a": 9.0, "b[x]": 1.0, "b[y]": 1.0, "c": 2.0, "d": 0.5, "e": 0.1}
    arrays = {test: np.array(numbers, np.int64) for test, numbers in reached.items()}
    assert first_tier(arrays, seconds, set()) == {"b[x]", "b[y]", "d"}
    chosen = first_tier(arrays, seconds, {"a"})
    assert chosen == {"a"}
    assert list(later({*reached}, {"a", "b[x]"})) == ["b[y]", "c", "d", "e"]
    assert list(later({*reached}, {"a"})) == ["b", "c", "d", "e"]
