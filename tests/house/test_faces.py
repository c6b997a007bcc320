"""Public faces: names resolve, stay cheap to import, and examples import from one folder deep."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from together import over

import interp

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(p.parent.name for p in (ROOT / "interp").glob("*/__init__.pyi"))
MOST = 377
"""Public names over all folders: what users of notebooks and pipelines import."""
OF_COMMANDS = ("interp.cli.command", "interp.cli.run")
"""What a file of commands imports; `command` in the face would be hidden by the module's name."""
OF_RESULTS = (
    "interp.core.presenter",
    "interp.core.result_rows",
    "interp.core.table",
    "interp.draw.parts",
)
"""What a file of the package imports that makes a result and presents it."""
FACES = ["interp", *(f"interp.{name}" for name in FOLDERS)]


@over("face", FACES)
def test_every_public_name_is_there_and_listed(face: str) -> None:
    module = import_module(face)
    for name in module.__all__:
        assert getattr(module, name) is not None, name
        assert name in dir(module)
    with pytest.raises(AttributeError):
        _ = module.no_such_name


@over("face", FACES)
def test_the_stub_lists_what_it_imports(face: str) -> None:
    tree = ast.parse(Path(str(import_module(face).__file__) + "i").read_text(encoding="utf-8"))
    imported = {a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    [shown] = [n.value for n in tree.body if isinstance(n, ast.Assign)]
    assert imported == set(ast.literal_eval(shown))


def test_public_names_are_few() -> None:
    """What only another folder imports, or a registered name reaches, stays in its module."""
    assert sum(len(names_of(stub)) for stub in (ROOT / "interp").rglob("*.pyi")) <= MOST


def names_of(stub: Path) -> list[str]:
    """Return the names that a stub lists."""
    assigned = (n for n in ast.parse(stub.read_text()).body if isinstance(n, ast.Assign))
    return [name for node in assigned for name in ast.literal_eval(node.value)]


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "interp" / "py.typed").is_file()


def test_importing_interp_imports_nothing_heavy() -> None:
    faces = "; ".join(f"import {face}" for face in FACES)
    heavy = "{'torch', 'transformers', 'pandas', 'plotly', 'scipy', 'sklearn'}"
    code = f"import sys; {faces}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_declared_analyses_are_names_of_their_folder() -> None:
    from interp.attribution import rollout
    from interp.circuits import screen_verify
    from interp.heads import induction, ov_copying, sink

    named = [x.name for x in (induction, ov_copying, sink, rollout, screen_verify)]
    assert named == ["induction", "ov_copying", "sink", "rollout", "screen_verify"]
    assert {"induction", "score", "sink"} <= set(dir(import_module("interp.heads")))


def test_one_call_per_task() -> None:
    from interp.causal import leave_one_out

    assert interp.ablate is leave_one_out


@cache
def examples() -> list[tuple[str, str]]:
    """Where code is shown, and the code."""
    found = []
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("circuits/*.md")]:
        text = path.read_text(encoding="utf-8")
        found += [(path.name, code) for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found += [(path.name, "".join(c["source"])) for c in cells if c["cell_type"] == "code"]
    for path in (ROOT / "interp").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        shows = any(
            re.search("(from|import) interp", quoted)
            for quoted in re.findall(r'"""(.*?)"""', text, re.DOTALL)
        )
        for node in ast.walk(ast.parse(text)) if shows else ():
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found.append((path.name, ast.get_docstring(node) or ""))
    return found


def test_examples_import_from_one_folder_deep() -> None:
    deep = [
        (where, line.strip())
        for where, code in examples()
        for line in code.splitlines()
        if (found := re.match(r"\s*(?:>>> )?(?:from|import) (interp(\.\w+){2,})", line))
        and found[1] not in OF_COMMANDS + OF_RESULTS
    ]
    assert deep == []


def test_what_examples_import_exists() -> None:
    missing = []
    for where, code in examples():
        for line in code.splitlines():
            found = re.fullmatch(r"\s*(?:>>> )?from (interp[\w.]*) import ([\w, ]+)", line)
            for part in found[2].split(",") if found else ():
                try:
                    exec(f"from {found[1]} import {part}", {})
                except ImportError:
                    missing.append((where, line.strip()))
    assert missing == []


def test_the_classes_that_guides_call_are_public() -> None:
    """A class whose call or method stands in a guide is imported from a folder, not from a file."""
    public = {name for face in FACES for name in import_module(face).__all__}
    public |= {name for stub in (ROOT / "interp").rglob("*.pyi") for name in names_of(stub)}
    classes = {
        node.name
        for path in (ROOT / "interp").rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    called = {
        (path.name, name)
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for code in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8"))
        for name in re.findall(r"(?<![\w.])([A-Z][a-z]\w+)(?:\.\w+)?\(", code)
    }
    assert ("caches.md", "CachePlan") in called
    assert not {each for each in called if each[1] in classes - public}
