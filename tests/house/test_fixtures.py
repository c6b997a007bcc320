"""Fixtures: one conftest.py, each name defined once, none without a user."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
BY_NAME = ("mark.usefixtures", ".getfixturevalue")
FILES = sorted(TESTS.rglob("*.py"))


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    """Functions and methods; those inside functions are no fixtures."""
    found = []
    for node in getattr(tree, "body", ()):
        found += [node] if isinstance(node, ast.FunctionDef) else functions(node)
    return found


def decorator(function: ast.FunctionDef) -> ast.expr | None:
    """The decorator that makes a function a fixture."""
    for one in function.decorator_list:
        if ast.unparse(one.func if isinstance(one, ast.Call) else one) == "pytest.fixture":
            return one
    return None


@cache
def fixtures() -> list[tuple[str, Path, ast.expr | None]]:
    return [
        (function.name, path, decorator(function))
        for path, tree in trees().items()
        for function in functions(tree)
        if decorator(function)
    ]


def asked(path: Path, tree: ast.AST) -> set[str]:
    """Names that tests and fixtures take, or name in a call of `BY_NAME`."""
    found = set()
    for function in functions(tree):
        if function.name.startswith("test_") or decorator(function):
            found |= {argument.arg for argument in function.args.args + function.args.kwonlyargs}
    text = path.read_text(encoding="utf-8")
    for call in ast.walk(tree) if any(name in text for name in BY_NAME) else ():
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(BY_NAME):
            found |= {name.value for name in call.args if isinstance(name, ast.Constant)}
    return found


def test_there_is_one_conftest() -> None:
    assert [p for p in FILES if p.name == "conftest.py"] == [TESTS / "conftest.py"]


def test_every_module_of_shared_fixtures_is_a_plugin(request: pytest.FixtureRequest) -> None:
    shared = {f"fixtures.{path.stem}" for path in (TESTS / "fixtures").glob("*.py")}
    assert shared
    assert all(request.config.pluginmanager.has_plugin(name) for name in shared)


def test_a_name_is_defined_once() -> None:
    twice = {name for name, n in Counter(name for name, _, _ in fixtures()).items() if n > 1}
    assert {str(path) for name, path, _ in fixtures() if name in twice} == set(), sorted(twice)


def test_each_fixture_has_a_user() -> None:
    used = set().union(*(asked(*one) for one in trees().items()))
    idle = {name for name, _, _ in fixtures() if name not in used}
    automatic = {name for name, _, made in fixtures() if made and "autouse" in ast.unparse(made)}
    assert idle - automatic == set()
