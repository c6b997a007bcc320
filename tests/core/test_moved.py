"""Import paths of version 0.1.0 fail with the place where the module is now."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from interp.core import moved

ROOT = Path(__file__).parents[2]
TABLE = json.loads((ROOT / "interp/core/moved.json").read_text(encoding="utf-8"))
GONE = [name for name in TABLE if moved._existing(name) != name]  # some names were taken anew


@pytest.mark.parametrize(
    ("statement", "now"),
    [
        (
            "from interp.circuit.find import find_circuit",
            "from interp.circuits import find_circuit",
        ),
        ("import interp.analysis", "from interp.heads import"),
        ("from interp import capture", "from interp.model import ActivationCache"),
        ("import interp.circuit", "from interp.circuits import"),
        ("from interp.flow import rollout", "interp.attribution.methods"),
        ("from interp.heads.induction import induction", "from interp.heads import induction"),
        ("from interp.needle import copy_paste", "from interp.heads import needle"),
        ("from interp.bundled.train import train", "training/"),
    ],
)
def test_the_error_says_where_a_module_is_now(statement: str, now: str) -> None:
    with pytest.raises(ImportError, match=r"of interp 0\.1\.0") as raised:
        exec(statement)
    assert now in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_old_module_can_be_imported() -> None:
    for name in GONE:
        with pytest.raises(ImportError, match=rf"^{name} was a module of interp 0\.1\.0"):
            import_module(name)


def test_every_place_that_is_named_exists() -> None:
    """A module that moves again takes its row of moved.json with it."""
    lost = {}
    for name in GONE:
        new = TABLE[name]
        inside = new.startswith("interp.")
        if moved._existing(new) != new if inside else not (ROOT / new.split()[0]).exists():
            lost[name] = new
    assert lost == {}


def test_other_names_fail_as_usual() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'interp\.nothing'"):
        import_module("interp.nothing")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from interp import nothing")


def test_the_table_is_not_read_until_an_import_fails() -> None:
    code = (
        "import sys; opened = []; sys.addaudithook(lambda e, a: opened.append(str(a[0])) if e =="
        " 'open' else None); import interp, interp.core, interp.heads;"
        " print([x for x in opened if x.endswith('moved.json')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
