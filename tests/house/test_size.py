"""The package stays within its budget, which is raised only by a commit of its own."""

from __future__ import annotations

import subprocess
import tomllib
from itertools import pairwise

import pytest
from house import size


def test_the_package_is_within_its_budget() -> None:
    budget = size.budget()
    over = [
        f"{table} {name}: {value:,} of {budget.get(table, {}).get(name, 0):,}"
        for table, values in size.measured().items()
        for name, value in values.items()
        if value > budget.get(table, {}).get(name, 0)
    ]
    assert not over, (
        "larger than tests/house/size.toml allows; make it smaller, or raise the figure in a "
        f"commit of its own that says why and what left: {over}"
    )


def test_what_counts_as_a_line_of_code() -> None:
    text = '''"""A module
of two lines."""

import os  # a comment

from a import (
    b,
)


def f(x: int) -> str:
    """Return a text."""

    # a comment
    y = (
        x
    )
    return """two
lines"""
'''
    assert size.code_lines(size.File("interp/a.py", text, 0)) == 6


def test_sections_of_internal_functions_are_seen() -> None:
    doc = '"""Do it.\n\n    Args:\n        x: a number.\n    """'
    bodies = {
        f"def shown(x):\n    {doc}\n": 0,
        f"def inner(x):\n    {doc}\n": 1,
        f"@experiment(unit='x')\ndef declared(x):\n    {doc}\n": 0,
        f"class Shown:\n    def f(self, x):\n        {doc}\n": 0,
        f"class Shown:\n    def _f(self, x):\n        {doc}\n": 1,
        f"class Inner:\n    def f(self, x):\n        {doc}\n": 1,
        f"class Kind(Shown):\n    def f(self, x):\n        {doc}\n": 0,
        f"def shown():\n    def inside(x):\n        {doc}\n": 1,
    }
    public = {("interp.a", "shown"), ("interp.a", "Shown")}
    for text, count in bodies.items():
        internal = size.internal_sections(size.File("interp/a.py", text, 0), public)
        assert len(list(internal)) == count, text


def test_a_raised_budget_is_a_commit_of_its_own() -> None:
    where = size.BUDGET.relative_to(size.ROOT).as_posix()

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(size.ROOT), *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"this checkout has no history to read: {done.stderr.strip()}")
        return done.stdout

    commits = git("log", "-30", "--format=%H", "--", where).split()
    for new, old in pairwise(commits):
        before, after = (tomllib.loads(git("show", f"{c}:{where}")) for c in (old, new))
        raised = [
            name
            for table, values in after.items()
            for name, value in values.items()
            if value > before.get(table, {}).get(name, value)
        ]
        if raised:
            files = git("show", "--format=", "--name-only", new).split()
            assert files == [where], f"{new[:8]} raises {raised} beside other changes"
