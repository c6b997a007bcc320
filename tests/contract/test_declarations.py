"""What every declared function must do, asked of every file of every registry.

`test_metrics.py`, `test_attribution_methods.py` and `test_circuit_methods.py` run them. None of
these needs an edit for a new file.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from together import over

from interp.core.declaration import Declaration
from interp.core.entry import read_entries
from interp.core.errors import OptionError, UnknownName
from interp.core.registry import METRICS, REGISTRIES, Registry
from interp.testing.contract import check_declared_options, check_docstring, check_example
from interp.testing.metric import picture

ALL = [pytest.param(known, name, id=name) for known in REGISTRIES for name in sorted(known)]
PACKAGES = {e.package: known for known in REGISTRIES for e in known.values()}


@over(("known", "name"), ALL)
def test_what_the_file_states_is_what_it_runs(known: Registry, name: str) -> None:
    stated, declared = known[name], known.load(name)
    assert isinstance(declared, Declaration)
    assert (stated.name, stated.kind, stated.doc) == (declared.name, declared.kind, declared.doc)
    assert repr(declared) == f"<{stated.kind} {name}: {stated.summary}>"  # provenance holds it
    for key, value in stated.about.items():
        assert getattr(declared, key) == value, key
    assert {n: d for n, (d, _) in stated.options.items()} == {
        n: o.default for n, o in declared.options.items()
    }


@over(("known", "name"), ALL)
def test_the_docstring_says_what_it_is_and_what_it_is_not_for(known: Registry, name: str) -> None:
    entry = known[name]
    check_docstring(known.load(name))
    if known is METRICS:
        assert entry.unit


@over(("known", "name"), ALL)
def test_options_are_parsed_bound_and_named(known: Registry, name: str) -> None:
    declared = known.load(name)
    check_declared_options(declared)
    plain = declared.bind()
    assert known.parse(name).label == name
    assert known.given(name, {}) == known.given(declared, {}) == (declared, {})
    for read in (known.parse, lambda text: known.given(text, {})):
        with pytest.raises(UnknownName, match=f"option of {name}"):
            read(f"{name}:no_such_option=1")
    for option in declared.options.values():
        given = known.parse(f"{name}:{option.name}={option.default}")
        assert dict(given.options) == dict(plain.options), option.name
        text = f"{name}:{option.name}={option.default}"
        assert known.given(text, {}) == (declared, {option.name: option.default})
        with pytest.raises(OptionError, match="is given in the name and beside it"):
            known.given(text, {option.name: option.default})


@over(("known", "name"), ALL)
def test_worked_example(known: Registry, name: str) -> None:
    entry = known[name]
    if entry.kind == "detector":
        assert "\n>>> " in entry.doc, f"{name} shows no worked example"
    check_example(known.load(name), picture=picture)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_what_its_files_declare(package: str) -> None:
    known = PACKAGES[package]
    found = dir(importlib.import_module(package))
    assert found == sorted(name for name, e in known.items() if e.package == package)


FAMILY = '''
from dataclasses import dataclass
from interp.core.declaration import like
from interp.heads.declaration import experiment
from interp.heads.needle.instance import SourceOptions

@dataclass(frozen=True)
class Mine(SourceOptions):
    """Needles of mine.

    Options:
        depths: how many depths.
        more: how many more.
    """
    needles: int = 3
    more: int = 1

@experiment(unit="share", low=0.0, requires=("tokens",), options=Mine)
def first(model, lab, given: Mine, *, least: float = 0.5):
    """Attends first.

    Null: none.

    Not for: anything.

    Options:
        least: the least.
        task: my task.

    Reference: mine.
    """
    return given, least

@like(first, unit="mass", high=1.0)
def second(model, lab, given, *, most: float = 0.7):
    """Attends second.

    Cost: nothing.

    Options:
        most: the most.
    """
    return given, most
'''


def test_a_family_shares_arguments_options_and_sections(tmp_path: Path) -> None:
    """As the file states it and as it runs, in the order of the signatures and sections."""
    path = tmp_path / "family.py"
    path.write_text(FAMILY)
    kinds = {"experiment": {}}
    spec = importlib.util.spec_from_file_location("family", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for stated, own in zip(read_entries(path, "own", "own", kinds), ("least", "most"), strict=True):
        made = getattr(module, stated.name)
        names = [
            "task",
            "needles",
            "min_length",
            "max_length",
            "lengths",
            "depths",
            "answer",
            "more",
        ]
        assert [*stated.options] == [*made.options] == [*names, own]
        assert {n: d for n, (d, _) in stated.options.items()} == {
            n: o.default for n, o in made.options.items()
        }
        assert stated.options["needles"] == (3, "int")
        assert stated.options["min_length"] == (32, "int")
        assert stated.doc == made.doc
        assert (made.kind, made.unit, made.low, made.high) == (
            ("experiment", "share", 0.0, None)
            if own == "least"
            else ("experiment", "mass", 0.0, 1.0)
        )
        assert stated.about["unit"] == made.unit
        given, value = made.apply(None, None, **made.bind(depths=7).options)
        assert (given.depths, given.needles, value) == (7, 3, stated.options[own][0])
    for text in (
        "Cost: nothing.\n\nNull: none.\n\nNot for: anything.\n\nOptions:\n    task: my",
        "\n    depths: how many depths.\n    answer:",
        "\n    more: how many more.\n    most: the most.\n\nReference: mine.",
    ):
        assert text in made.doc


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("@like(elsewhere)", "elsewhere, which a declaration names, is not defined there"),
        ("@like(plain)", "second is like plain, which declares nothing"),
        ("@experiment(unit='x', options=plain)", "plain, which a declaration names"),
    ],
)
def test_a_family_that_cannot_be_read_is_refused(tmp_path: Path, mark: str, message: str) -> None:
    path = tmp_path / "family.py"
    path.write_text(
        f"def plain(model):\n    'Plain.'\n\n{mark}\ndef second(model):\n    'Second.'\n"
    )
    with pytest.raises(OptionError, match=message):
        read_entries(path, "own", "own", {"experiment": {}})


def test_a_file_of_another_kind_is_refused(tmp_path) -> None:
    for known in REGISTRIES:
        path = tmp_path / "nothing.py"
        path.write_text("x = 1\n")
        with pytest.raises(OptionError, match=f"declares no {known.noun}"):
            known.load(str(path))
        with pytest.raises(OptionError, match="does not exist"):
            known.load(str(tmp_path / "missing.py"))


def test_a_file_declares_a_family(tmp_path: Path) -> None:
    path = tmp_path / "steps.py"
    path.write_text(
        "from interp.heads import detector\n\n"
        "@detector\ndef one_back(query, key, *, by: int = 1):\n    'Attends back.'\n\n"
        "@detector\ndef two_back(query, key):\n    'Attends further back.'\n\n"
        "@detector\ndef _hidden(query, key):\n    'Private.'\n\n"
        "def plain(query, key):\n    'Not declared.'\n"
    )
    one, two = read_entries(path, "own", "own", {"detector": {"unit": "mass"}})
    assert (one.name, dict(one.options), two.name) == ("one_back", {"by": (1, "int")}, "two_back")
    assert one.path == two.path == path
    path.write_text("def plain(query, key):\n    'Not declared.'\n")
    with pytest.raises(OptionError, match=r"declares nothing: decorate a function with @detector"):
        read_entries(path, "own", "own", {"detector": {}})
