"""A deferred module is read when it is used, and is then the module that Python would have read."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from interp.cli import deferred

MODULE = """
VALUE = 3
MARKED = []
def call(x): return x + VALUE
def disable(function, bonus=0): return lambda x: function(x) + bonus
def mark(function): MARKED.append(function); return function
"""


@pytest.fixture
def waiting(tmp_path, monkeypatch) -> Iterator[ModuleType]:
    """A deferred module of a package that is in nobody's environment."""
    folder = tmp_path / "late_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "late.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    table = {"call": deferred._call, "disable": deferred._disable, "mark": deferred._mark}
    monkeypatch.setattr(deferred, "DEFERRED", {"late_package.late": table})
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    deferred.defer_modules()
    deferred.defer_modules()
    assert sum(isinstance(finder, deferred.Finder) for finder in sys.meta_path) == 1
    module = importlib.import_module("late_package.late")
    assert type(module) is deferred.Deferred
    yield module
    del sys.modules["late_package.late"], sys.modules["late_package"]


def test_any_other_name_reads_the_module(waiting) -> None:
    assert not hasattr(waiting, "__wrapped__"), "what looks at modules asks for such names"
    assert type(waiting) is deferred.Deferred
    assert waiting.VALUE == 3
    assert type(waiting) is ModuleType
    assert sys.modules["late_package.late"] is waiting
    assert waiting.call.__module__ == "late_package.late"
    assert not isinstance(waiting.__loader__, deferred.Unread)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = waiting.other


def test_functions_and_decorators_wait_for_their_call(waiting) -> None:
    def double(x: int) -> int:
        return 2 * x

    call, mark = waiting.call, waiting.mark
    directly, by_options = waiting.disable(double, 5), waiting.disable(None, bonus=7)(double)
    assert mark(double) is double
    assert directly.__name__ == "double"
    assert (directly(1), by_options(1)) == (2, 2), "what it would add, nothing can ask for yet"
    assert type(waiting) is deferred.Deferred, "nothing has needed it yet"
    assert call(4) == 7
    assert type(waiting) is ModuleType
    assert (directly(1), by_options(1)) == (7, 9)
    assert [double] == waiting.MARKED
    assert waiting.mark(call) is call
    assert len(waiting.MARKED) == 2


COMMAND = """
import sys
from interp.cli.deferred import Deferred
from interp.cli.main import main
try:
    main(["check", "bundled:induction"])
except SystemExit as ended:
    assert not ended.code, ended.code
waiting = {name for name, module in sys.modules.items() if type(module) is Deferred}
assert waiting == {"torch._dynamo", "scipy.optimize"}, waiting
assert "scipy.stats" not in sys.modules

import torch
from transformers.integrations import deepgemm
from torch._dynamo import trace_rules
assert id(deepgemm._load_deepgemm_kernel) in trace_rules._allowed_callable_ids
assert deepgemm.is_sm100._dynamo_marked_constant
compiled = torch.compile(lambda x: x * 2, backend="eager", fullgraph=True)
assert compiled(torch.ones(2)).tolist() == [2, 2]
"""


@pytest.mark.slow
def test_a_command_reads_neither_and_torch_compiles_after_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
