"""Hash of what a test of a claim computes: its code and that of what it uses, without its words.

A changed sentence leaves the hash as it is, and so does another file: neither asks for a new
measurement. A string with a space counts as words: names of metrics, methods and activations have
none. Followed are functions, classes and constants of the tests and of the training, by name.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import ModuleType
from typing import Any

OURS = ("papers", "training")  # packages whose code is followed


class _Wordless(ast.NodeTransformer):
    """Drop words, annotations and decorators."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        words = isinstance(node.value, str) and " " in node.value
        return ast.Constant("") if words else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        docstring = isinstance(node.value, ast.Constant)
        return ast.Expr(ast.Constant("")) if docstring else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        parts = [x.value for x in node.values if isinstance(x, ast.Constant)]
        return ast.Constant("") if " " in "".join(map(str, parts)) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list, node.returns = [], None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)


def tree_of(thing: Any) -> ast.AST:
    """Return the code of a function or class without its words."""
    return _Wordless().visit(ast.parse(textwrap.dedent(inspect.getsource(thing))))


def used_by(thing: Any, tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield the globals that code uses, and attributes of modules among them, by name."""
    known = vars(sys.modules[thing.__module__])
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in known:
            found = known[node.id]
            yield node.id, found
            if isinstance(found, tuple):
                yield from ((node.id, x) for x in found)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = known.get(node.value.id)
            if isinstance(owner, ModuleType) and hasattr(owner, node.attr):
                yield node.attr, getattr(owner, node.attr)


def closed_over(thing: Any) -> list[str]:
    """Return the names and texts that a function was made with."""
    if not inspect.isfunction(thing):
        return []
    cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
    held = [(name, cell.cell_contents) for name, cell in cells]
    return [f"{name} {x!r}" for name, x in held if isinstance(x, str | tuple | dict)]


def is_ours(thing: Any) -> bool:
    """Whether something is a function or class of the tests or of the training."""
    module = str(getattr(thing, "__module__", ""))
    return hasattr(thing, "__qualname__") and module.partition(".")[0] in OURS


def code_hash(*things: Any, also: object = None) -> str:
    """Return the hash of functions, classes and constants, with all that they use of ours."""
    parts: dict[str, str] = {"": repr(also)}
    waiting = [(getattr(x, "__qualname__", ""), x) for x in things]
    while waiting:
        name, thing = waiting.pop()
        thing = inspect.unwrap(thing) if callable(thing) else thing
        if is_ours(thing):
            key = f"{thing.__module__}.{thing.__qualname__}"
            if key not in parts:
                tree = tree_of(thing)
                parts[key] = f"{thing.__qualname__}: {ast.dump(tree)}"
                parts |= {x: x for x in closed_over(thing)}
                waiting += used_by(thing, tree)
        elif isinstance(thing, int | float | range) or is_dataclass(thing):
            parts[f"{name} {thing!r}"] = f"{name} {thing!r}"
    return hashlib.sha256("\n".join(sorted(parts.values())).encode()).hexdigest()[:12]
