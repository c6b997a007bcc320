"""Which tests wait for the second tier: those that reach nothing that cheaper tests do not reach.

    pip install pytest-cov
    python tests/house/tiers.py            runs the tests and writes the list
    python tests/house/tiers.py --dry-run  only says how many tests that are, and their time
    python tests/house/tiers.py --first    chooses among the tests of today's first tier, and adds
                                           those of the others to the list that take .3 s or more

The tests without the marks `slow` and `gpu` run once under branch coverage, one context per test.
The first tier is a cheapest set that reaches every line and branch of a function that any of them
reaches, found greedily by new branches per second of processor time, then freed of tests whose
branches the others reach; tests that a mutant of `benchmarks/mutants.py` needs stay, and those of
files and texts, which reach no branch, unless they take more than 15 s. The cases of a test count
together unless they take more than 5 s. The others are listed in `tests/second_tier.txt`, read by
`tests/conftest.py`. A new test is in the first tier.

A line that runs once per process counts for the test that came first, so the chosen tests alone may
reach a few lines less than all; that is not measured.
"""

from __future__ import annotations

import ast
import heapq
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SECOND = ROOT / "tests" / "second_tier.txt"
COSTS = "INTERP_TEST_COSTS"
WITHOUT_RIGHTS = "tests/core/test_store.py::test_a_folder_that_may_not_be_written"
"""It takes rights from the process that coverage needs for its file."""
SETTINGS = "[run]\nbranch = True\nsource = interp,interp_kernels\ndata_file = {}\n"
HEAD = """\
# Tests of the second tier besides those with the mark `slow`: cheaper tests reach what they reach.
# Written by tests/house/tiers.py: a file, and below it its tests, or cases of tests that take long.
"""
LONG = 5
"""Seconds of processor time; the cases of a test that take more are chosen one by one."""
QUICK = 0.3
"""Seconds of processor time of a test below which it stays in the first tier."""
OF_FILES = 15
"""Seconds of processor time that a test of files and texts may take in the first tier."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Write down the processor time of a test, with that of the processes it starts."""
    before = time.process_time() + sum(os.times()[2:4])
    try:
        return (yield)
    finally:
        seconds = time.process_time() + sum(os.times()[2:4]) - before
        with (Path(os.environ[COSTS]) / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps([item.nodeid, seconds]) + "\n")


def listed() -> list[str]:
    """Return the tests of the list, as functions or single cases of them."""
    file, tests = "", []
    for line in SECOND.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            tests.append(f"{file}::{line.strip()}")
        elif not line.startswith("#"):
            file = line
    return tests


def function(test: str) -> str:
    """Return the function of a case."""
    return test.partition("[")[0]


def measured(folder: Path, marks: str) -> None:
    """Run the tests with these marks once, with branches and processor time of each."""
    settings = folder / "settings"
    settings.write_text(SETTINGS.format(folder / "coverage"))
    words = f"-q -n 2 -p house.tiers --cov --cov-context=test --cov-config={settings} --cov-report="
    words += f" --deselect {WITHOUT_RIGHTS}"
    subprocess.run(
        [sys.executable, "-m", "pytest", *words.split(), "-m", marks],
        cwd=ROOT,
        env=os.environ | {COSTS: str(folder), "PYTHONPATH": str(ROOT / "tests")},
        check=False,
    )


def costs(folder: Path) -> dict[str, float]:
    """Return the seconds of processor time of each test that ran."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return dict(map(json.loads, lines))


def inside_functions(path: str) -> list[int]:
    """Return the lines of a file that run when a function is called, not at import."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines.update(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
    return sorted(lines)


def branches(folder: Path) -> dict[str, np.ndarray]:
    """Return the branches that each test reaches, as numbers of (file, from line, to line)."""
    data = sqlite3.connect(folder / "coverage")
    contexts = dict(data.execute("select id, context from context"))
    reached: dict[str, list[np.ndarray]] = defaultdict(list)
    start = 0
    for number, path in data.execute("select id, path from file where path like '%.py'").fetchall():
        rows = data.execute("select context_id, fromno, tono from arc where file_id = ?", [number])
        table = np.array(rows.fetchall(), np.int64).reshape(-1, 3)
        table = table[np.isin(np.abs(table[:, 1:]), inside_functions(path)).any(1)]
        if not len(table):
            continue
        table = table[np.argsort(table[:, 0], kind="stable")]
        _, branch = np.unique(table[:, 1:], axis=0, return_inverse=True)
        ids, first = np.unique(table[:, 0], return_index=True)
        for context, part in zip(ids, np.split(branch.ravel(), first[1:]), strict=True):
            reached[contexts[context].partition("|")[0]].append(part + start)
        start += int(branch.max()) + 1
    return {test: np.unique(np.concatenate(parts)) for test, parts in reached.items() if test}


def first_tier(
    reached: dict[str, np.ndarray], seconds: dict[str, float], needed: set[str]
) -> set[str]:
    """Return tests that reach all branches, few and cheap."""
    size = 1 + max(int(x.max(initial=0)) for x in reached.values())
    times = np.zeros(size, np.int64)  # how many chosen tests reach a branch
    of_files = {t for t, x in reached.items() if not len(x) and seconds[t] <= OF_FILES}
    chosen = {test for test in reached if function(test) in needed} | of_files
    for test in chosen:
        times[reached[test]] += 1

    def worth(test: str) -> float:
        return float((times[reached[test]] == 0).sum() / (seconds[test] + 0.01))

    queue = [(-worth(test), test) for test in sorted(reached.keys() - chosen)]
    heapq.heapify(queue)
    while queue:
        _, test = heapq.heappop(queue)
        now = worth(test)
        if now == 0:
            continue
        if queue and now < -queue[0][0]:
            heapq.heappush(queue, (-now, test))  # others were taken since: look again later
            continue
        chosen.add(test)
        times[reached[test]] += 1
    for test in sorted(chosen, key=lambda test: -seconds[test]):
        if (
            test not in of_files
            and function(test) not in needed
            and (times[reached[test]] > 1).all()
        ):
            chosen.remove(test)
            times[reached[test]] -= 1
    return chosen


def together(
    reached: dict[str, np.ndarray], seconds: dict[str, float]
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Add up the cases of each function, unless they take long."""
    whole: dict[str, float] = defaultdict(float)
    for test, cost in seconds.items():
        whole[function(test)] += cost
    parts: dict[str, list[np.ndarray]] = defaultdict(list)
    costs: dict[str, float] = defaultdict(float)
    for test, cost in seconds.items():
        unit = test if whole[function(test)] > LONG else function(test)
        costs[unit] += cost
        parts[unit].append(reached.get(test, np.array([], np.int64)))
    return {unit: np.unique(np.concatenate(x)) for unit, x in parts.items()}, dict(costs)


def later(tests: Iterable[str], chosen: set[str]) -> list[str]:
    """Name the tests that are not chosen; a function of which no case is chosen by its name."""
    functions = {function(test) for test in chosen}
    others = (test for test in tests if test not in chosen)
    return sorted({test if function(test) in functions else function(test) for test in others})


def text_of(tests: Iterable[str]) -> str:
    """Return the list as `listed` reads it."""
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        file, _, name = test.partition("::")
        by_file[file].append(f"  {name}")
    return HEAD + "".join("\n".join([file, *names]) + "\n" for file, names in by_file.items())


def added(seconds: dict[str, float], chosen: set[str]) -> list[str]:
    """Name the tests that are listed besides those of today: not chosen, and not quick."""
    costs: dict[str, float] = defaultdict(float)
    for test, cost in seconds.items():
        costs[function(test)] += cost
    quick = {test for test in seconds if costs[function(test)] < QUICK}
    return sorted({*later(seconds, chosen | quick), *listed()})


def mutants_tests() -> set[str]:
    """Return the tests that the mutants need."""
    sys.path[:0] = [str(ROOT)]
    from benchmarks.mutants import MUTANTS

    return {test for one in MUTANTS for test in one.tests}


def write(folder: Path, *, first: bool, dry_run: bool) -> None:
    """Choose the first tier from measurements in a folder, and write the list of the others."""
    reached, seconds = together(branches(folder), costs(folder))
    chosen = first_tier(reached, seconds, mutants_tests())
    cost, whole = (sum(seconds[test] for test in x) / 60 for x in (chosen, seconds))
    print(
        f"{len(chosen):,} of {len(seconds):,} tests reach every branch that all reach, in "
        f"{cost:.1f} of {whole:.1f} minutes of processor time"
    )
    if not dry_run:
        others = added(seconds, chosen) if first else later(seconds, chosen)
        SECOND.write_text(text_of(others), encoding="utf-8")


def main(words: list[str]) -> None:
    """Measure in a folder of its own, or read the measurements of the folder that is named."""
    folders = [Path(word) for word in words if not word.startswith("-")]
    first = "--first" in words
    with TemporaryDirectory() as name:
        if not folders:
            measured(Path(name), "first" if first else "not slow and not gpu")
        folder = folders[0] if folders else Path(name)
        write(folder, first=first, dry_run="--dry-run" in words)


if __name__ == "__main__":
    main(sys.argv[1:])
