"""Presenters of results: one per result, in its own file, and no table by the names of types."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from together import over

from interp.core import presenter
from interp.core.presenter import Presenter, form_of, present, presented, presenters_in, resolved
from interp.core.result_rows import ResultRows
from interp.core.signature import read

ROOT = Path(__file__).parents[2] / "interp"
EARLIER = "interp.report.presenters"
"""File with the presenters of the results of folders before `draw`."""


def module_of(path: Path) -> str:
    return ".".join(("interp", *path.relative_to(ROOT).with_suffix("").parts))


@cache
def trees() -> dict[str, ast.Module]:
    """Every module, parsed."""
    paths = sorted(ROOT.rglob("*.py"))
    return {module_of(p): ast.parse(p.read_text(encoding="utf-8")) for p in paths}


@cache
def made_in() -> dict[str, set[str]]:
    """Result classes and kinds of `ResultRows`: the modules that define or make them."""
    classes: dict[str, list[tuple[str, set[str]]]] = {}
    found: dict[str, set[str]] = {}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef():
                    bases = {ast.unparse(base) for base in node.bases}
                    classes.setdefault(node.name, []).append((module, bases))
                case ast.Call(func=ast.Name("ResultRows"), args=[ast.Constant(str(kind)), *_]):
                    found.setdefault(kind, set()).add(module)
                case ast.Call(func=ast.Attribute(attr="replace"), keywords=[*options]) if any(
                    k.arg == "facts" for k in options
                ):  # of rows, whose kind changes with their facts
                    changed = [k.value for k in options if k.arg == "kind"]
                    for kind in map(ast.literal_eval, changed):
                        found.setdefault(kind, set()).add(module)
    names = {"Displayed"}
    for _ in range(4):  # from base classes to those below them
        below = {n: m for n, every in classes.items() for m, bases in every if names & bases}
        names |= {*below}
        for name, module in below.items():
            found.setdefault(name, set()).add(module)
    return found


@cache
def stated() -> list[tuple[str, str, dict[str, Any]]]:
    """Name, module and forms of every presenter, as they stand in the source."""
    return [
        (name, module_of(path), dict(there.forms))
        for path in sorted(ROOT.rglob("*.py"))
        for name, there in presenters_in(path, module_of(path)).items()
    ]


BY_NAME = {name: (module, forms) for name, module, forms in stated()}


def test_there_is_one_presenter_per_result() -> None:
    names = [name for name, _, _ in stated()]
    assert len(names) > 80
    assert sorted(names) == sorted({*names})


@over("name", BY_NAME)
def test_a_presenter_stands_in_the_file_that_makes_its_result(name: str) -> None:
    module, _ = BY_NAME[name]
    cls = presenter._in_package()[name].cls
    if module == EARLIER:
        assert cls.split(".")[1] in ("core", "model"), "state it in the file of the class"
    elif cls.startswith("interp.core.result_rows:") and name != "ResultRows":
        assert module in made_in().get(name, ()), "no such kind is made in this file"
    else:
        assert any(getattr(x, "name", "") == name for x in trees()[module].body)


@over("name", BY_NAME)
def test_every_form_is_there(name: str) -> None:
    _, forms = BY_NAME[name]
    assert {*forms} <= {*Presenter.__annotations__}
    for form, target in forms.items():
        for each in target if isinstance(target, tuple) else (target,):
            if isinstance(each, str) and ":" in each:
                assert callable(resolved(each)), each
        if form == "text":
            assert read(str(target)).parameters


@over("name", BY_NAME)
def test_the_source_says_what_the_module_registers(name: str) -> None:
    """A file of results is read without importing the room; the presenter must be the same."""
    module, forms = BY_NAME[name]
    import_module(module)
    registered: dict[str, Any] = dict(presenter._REGISTERED[name].forms)
    assert {*registered} == {*forms}
    for form, target in forms.items():
        one, other = ((x,) if not isinstance(x, tuple) else x for x in (target, registered[form]))
        for a, b in zip(one, other, strict=True):
            assert a == b or resolved(a) is resolved(b), form


def test_every_form_is_asked_for() -> None:
    asked = re.compile(r"(?:\bdrawn|form_of|get|\.forms)[(\[]\s*[\"'](\w+)[\"']")
    found = {name for path in ROOT.rglob("*.py") for name in asked.findall(path.read_text("utf-8"))}
    assert {*Presenter.__annotations__} <= found


def test_every_result_has_a_presenter_or_inherits_one() -> None:
    assert len(made_in()) > 80
    lacking = {}
    for name, [module, *_] in made_in().items():
        made = getattr(import_module(module), name, ResultRows)
        chain = [name, *(cls.__name__ for cls in made.__mro__)]
        forms = {form for each in chain for form in getattr(presented(each), "forms", {})}
        lacking[name] = {"first_line", "inline", "page", "vector", "publish"} - forms
    assert {name for name, forms in lacking.items() if forms} == set()


def test_no_table_has_the_names_of_types_as_keys() -> None:
    """A result that needs a line in a table elsewhere is forgotten there: its presenter has it."""
    names = {*made_in(), *BY_NAME} - {"Displayed", "Result", "ResultRows"}
    tables = []
    for module, tree in trees().items():
        nodes = [*ast.walk(tree)]
        checks = {
            id(node.args[1])
            for node in nodes
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")
        }
        for node in nodes:
            keys = getattr(node, "keys" if isinstance(node, ast.Dict) else "elts", [])
            named = {str(x.value) for x in keys if isinstance(x, ast.Constant)}
            named |= {x.id for x in keys if isinstance(x, ast.Name)}
            if len(named & names) > 1 and id(node) not in checks:
                tables.append(f"{module}: {', '.join(sorted(named & names))}")
    assert tables == []


class Width(ResultRows):
    """A subclass without a presenter of its own."""


def test_a_class_takes_from_its_base_class_what_it_does_not_state() -> None:
    present(Width, summary=lambda found: f"{len(found)} widths")
    rows = Width("Widths", {"score": [1.0, 2.0]})
    assert repr(rows) == "2 widths"
    assert form_of("page", rows) == "interp.draw.rows:rows_page"


def test_an_installed_package_registers_a_presenter(tmp_path, monkeypatch) -> None:
    about = tmp_path / "heights-1.0.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_text("[interp.results]\nHeights = heights_of_heads\n")
    (tmp_path / "heights_of_heads.py").write_text(
        "from interp.core.presenter import present\n"
        "present('Heights', summary=lambda found: f'{len(found)} heights')\n"
    )
    ResultRows("Heights", {"score": [1.0]}).save(tmp_path / "heights.json")
    monkeypatch.syspath_prepend(tmp_path)
    presenter._elsewhere.cache_clear()
    assert repr(ResultRows.load(tmp_path / "heights.json")) == "1 heights"
