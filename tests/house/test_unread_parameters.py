"""Every parameter of a command or function is read: what is accepted has an effect.

Two kinds of parameters may stay unread, because something else decides the signature: positional
ones without a default of a function that is handed on (a hook, an entry of a table, a callback of
the command line), and of a method or declaration that others with the same name implement. A
parameter with a default, a keyword-only one, and those of a command are options, and always read.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("interp", "kernels/interp_kernels")
FIXED = {"discovery", "intrinsic", "inner"}  # decorators that decide the positional parameters
Function = ast.FunctionDef | ast.AsyncFunctionDef


def unread(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Yield file, function and name of every parameter that nothing reads, but has to."""
    methods, values = _known(trees.values())
    for path, tree in trees.items():
        for function, inside in _functions(tree, None):
            if _is_stub(function):
                continue
            read = {
                x.id
                for line in function.body
                for x in ast.walk(line)
                if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)
            }
            given = function.args
            positional = [*given.posonlyargs, *given.args]
            plain = positional[: len(positional) - len(given.defaults)]
            shared = methods[function.name] > (inside is not None)
            decided = (
                (inside and function.name.startswith("__"))
                or shared
                or values[function.name]
                or FIXED & {_name(x) for x in function.decorator_list}
            ) and not _is_command(function)
            for x in [*positional, *given.kwonlyargs, given.vararg, given.kwarg]:
                if x is None or x.arg in read or x.arg in ("self", "cls"):
                    continue
                if x.arg.startswith("_") or (decided and (x in plain or x is given.vararg)):
                    continue
                yield f"{path}: {function.name}({x.arg})"


def _known(trees: Iterable[ast.Module]) -> tuple[Counter[str], Counter[str]]:
    """Count the classes that have a method of a name, and the uses of a name as a value."""
    methods: Counter[str] = Counter()
    values: Counter[str] = Counter()
    for tree in trees:
        called: set[int] = set()
        for x in ast.walk(tree):  # a call comes before the name that it calls
            if isinstance(x, ast.Call):
                called.add(id(x.func))
            elif isinstance(x, ast.ClassDef):
                methods.update({f.name for f in x.body if isinstance(f, Function)})
            elif isinstance(x, (ast.Name, ast.Attribute)) and id(x) not in called:
                values[x.id if isinstance(x, ast.Name) else x.attr] += isinstance(x.ctx, ast.Load)
    return methods, values


def _functions(node: ast.AST, inside: str | None) -> Iterator[tuple[Function, str | None]]:
    """Yield functions and methods with their class; not those inside functions, which are hooks."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child, inside
        else:
            yield from _functions(child, child.name if isinstance(child, ast.ClassDef) else inside)


def _is_stub(function: Function) -> bool:
    """Return whether the body is a docstring, `...`, pass or raise."""
    return all(
        isinstance(x, (ast.Pass, ast.Raise))
        or (isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant))
        for x in function.body
    )


def _is_command(function: Function) -> bool:
    return any(_name(x) == "command" for x in function.decorator_list)


def _name(decorator: ast.expr) -> str:
    part = decorator.func if isinstance(decorator, ast.Call) else decorator
    return part.attr if isinstance(part, ast.Attribute) else ast.unparse(part)


def test_every_parameter_is_read() -> None:
    trees = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    assert len(trees) > 500
    assert list(unread(trees)) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def score(model, top): return model", "score(top)"),
        ("def score(model, *, top=1): return model\nhook = score", "score(top)"),
        ("@click.command()\ndef match(a, top): print(a)\nhook = match", "match(top)"),
        (
            "class A:\n def plot(self, k=20): return 1\nclass B:\n def plot(self, k=2): return k",
            "plot(k)",
        ),
        ("def hook(module, x): return x\nmodel.register(hook)", ""),
        ("class A:\n def read(self, x): return 1\nclass B:\n def read(self, x): return x", ""),
        ("def score(model, **options): return model", "score(options)"),
        ("def score(model):\n def inner(a): return model\n return inner", ""),
        ("def score(model, top): ...", ""),
    ],
)
def test_what_counts(code: str, found: str) -> None:
    assert list(unread({"a.py": ast.parse(code)})) == [f"a.py: {found}"] * bool(found)
