"""The first tier reaches what all tests reach; the list of the others names tests that exist."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from house import tiers
from house.tiers import LONG, ROOT, first_tier, later, listed, mutants_tests, together
from sampled import PARTS, part_of, sampled


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
    seconds = {"a": 9.0, "b[x]": 1.0, "b[y]": 1.0, "c": 2.0, "d": 0.5, "e": 99.0}
    arrays = {test: np.array(numbers, np.int64) for test, numbers in reached.items()}
    assert first_tier(arrays, seconds, set()) == {"b[x]", "b[y]", "d"}
    of_files = {"e": np.array([], np.int64)}
    assert first_tier(arrays | of_files, seconds | {"e": 1.0}, set()) >= {"e"}
    chosen = first_tier(arrays, seconds, {"a"})
    assert chosen == {"a"}
    assert later(reached, {"a", "b[x]"}) == ["b[y]", "c", "d", "e"]
    assert later(reached, {"a"}) == ["b", "c", "d", "e"]


def test_cases_count_together_unless_they_take_long() -> None:
    reached = {"a[1]": np.array([0]), "a[2]": np.array([1]), "b[1]": np.array([2])}
    arrays, seconds = together(reached, {"a[1]": 1.0, "a[2]": 2.0, "b[1]": LONG, "b[2]": LONG})
    assert seconds == {"a": 3.0, "b[1]": LONG, "b[2]": LONG}
    assert {name: list(x) for name, x in arrays.items()} == {"a": [0, 1], "b[1]": [2], "b[2]": []}


def test_the_list_is_read_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = ["tests/a.py::test_one", "tests/a.py::test_two[x y]", "tests/b/c.py::test_one"]
    monkeypatch.setattr(tiers, "SECOND", tmp_path / "list")
    tiers.SECOND.write_text(tiers.text_of(tests), encoding="utf-8")
    assert listed() == tests


def test_the_parts_of_the_second_tier_are_those_from_which_the_check_chooses() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    parts = [part_of(path) for path in files]
    assert {*parts} == set(range(PARTS))
    assert min(map(parts.count, range(PARTS))) > len(files) / PARTS / 2
    check = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f"commit % {PARTS}" in check
    assert f"of 0 to {PARTS - 1}" in check


@pytest.mark.slow
def test_the_files_of_a_part_are_collected_and_no_others() -> None:
    words = ["-q", "-p", "no:cacheprovider", "--collect-only", "--part", "2", "tests/house"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = {ROOT / line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert files == {
        path for path in (ROOT / "tests" / "house").glob("test_*.py") if part_of(path) == 2
    }


def test_a_sample_of_a_sweep_is_in_the_second_tier_and_the_rest_is_exhaustive() -> None:
    cases = ["a", pytest.param("b", id="named", marks=pytest.mark.gpu), "c", "d", "e"]
    marked = {
        case.values[0]: {mark.name for mark in case.marks} for case in sampled(cases, always=["e"])
    }
    assert marked == {
        "a": {"slow"},
        "b": {"slow", "exhaustive", "gpu"},
        "c": {"slow", "exhaustive"},
        "d": {"slow"},
        "e": {"slow"},
    }
    assert sampled(cases)[1].id == "named"
