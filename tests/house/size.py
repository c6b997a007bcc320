"""The size of the package, as its budget counts it.

    python tests/house/size.py            prints the figures beside the budget
    python tests/house/size.py --write    lowers the budget to the figures; it never raises it

Code lines are those of files that ruff formatted without any skip, without blank lines, comments,
docstrings and imports; `benchmarks` are the scripts beside the tests of papers. The budget is
`size.toml`; raise a figure there by hand, in a commit of its own that says why, and what left.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
BUDGET = Path(__file__).with_name("size.toml")
SKIPS = re.compile(r"  # fmt: ?skip|^\s*# fmt: ?(?:off|on)$", re.MULTILINE)
SECTIONS = re.compile(r"^\s*(?:Args|Returns|Raises|Yields):\s*$", re.MULTILINE)
DECLARES = {  # decorators of functions whose docstring is documentation for users
    "attribution",
    "command",
    "detector",
    "discovery",
    "experiment",
    "measurement",
    "property",
    "statistic",
    "weights",
}


@dataclass
class File:
    """One file of the package, formatted without skips."""

    path: str
    text: str
    skips: int

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text)


def files(package: str = "interp") -> list[File]:
    """Return the files of a package as ruff formats them once no line is left out."""
    with TemporaryDirectory() as name:
        copy = Path(name) / package
        shutil.copytree(
            ROOT / package,
            copy,
            ignore=lambda d, names: [
                n for n in names if not (Path(d) / n).is_dir() and not n.endswith(".py")
            ],
        )
        shutil.copy(ROOT / "pyproject.toml", name)
        skips = {}
        for path in sorted(copy.rglob("*.py")):
            text, count = SKIPS.subn("", path.read_text(encoding="utf-8"))
            skips[path] = count
            path.write_text(text, encoding="utf-8")
        subprocess.run(
            [sys.executable, "-m", "ruff", "format", "--quiet", "--no-cache", name], check=True
        )
        return [
            File(path.relative_to(name).as_posix(), path.read_text(encoding="utf-8"), count)
            for path, count in skips.items()
        ]


def code_lines(file: File) -> int:
    """Count the lines that hold code: no blanks, comments, docstrings or imports."""
    lines = file.text.splitlines()
    code = {i for i, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"}
    left_out: set[int] = set()
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            code.update(_span(node))  # lines of a text that are empty, or begin with #
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(_span(node))
        if (text := docstring_of(node)) is not None:
            left_out.update(_span(text))
    return len(code - left_out)


def _span(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def docstring_of(node: ast.AST) -> ast.Expr | None:
    """Return the statement that is the docstring of a module, class or function."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first if isinstance(first.value.value, str) else None
    return None


def public_names() -> set[tuple[str, str]]:
    """Return module and name of what the faces of the package export, or a command names."""
    public = set()
    for stub in (ROOT / "interp").rglob("*.pyi"):
        package = ".".join(stub.parent.relative_to(ROOT).parts)
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                module = f"{package}.{node.module}" if node.level else str(node.module)
                public |= {(module, alias.name) for alias in node.names}
    for path in (ROOT / "interp").rglob("*.py"):
        quoted = re.findall(r'"(interp[\w.]*):(\w+)"', path.read_text(encoding="utf-8"))
        public |= set(quoted)
    return public


def internal_sections(file: File, public: set[tuple[str, str]]) -> Iterator[ast.AST]:
    """Yield the functions that are not public and whose docstring has sections."""
    module = file.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    names = {name for _, name in public}

    def walk(body: list[ast.stmt], of_public_class: bool | None) -> Iterator[ast.AST]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                yield from walk(node.body, (module, node.name) in public or bool(bases & names))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                shown = (
                    (module, node.name) in public
                    if of_public_class is None
                    else of_public_class and not node.name.startswith("_")
                )
                text = ast.get_docstring(node, clean=False) or ""
                if not shown and not declared(node) and SECTIONS.search(text):
                    yield node
                yield from walk(node.body, False)

    yield from walk(file.tree.body, None)


def declared(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if a decorator registers the function, so that its docstring is its help."""
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(call).rpartition(".")[2] in DECLARES:
            return True
    return False


def measured() -> dict[str, dict[str, int]]:
    """Return the figures: of the package, code lines by folder, and of scripts that measure."""
    package, public = files(), public_names()
    by_folder = Counter[str]()
    for file in package:
        parts = file.path.split("/")
        by_folder[parts[1] if len(parts) > 2 else "interp"] += code_lines(file)
    lengths = [file.text.count("\n") for file in package]
    return {
        "package": {
            "code_lines": sum(by_folder.values()),
            "lines": sum(lengths),
            "files": len(package),
            "files_under_60_lines": sum(n < 60 for n in lengths),
            "formatter_skips": sum(file.skips for file in package),
            "internal_functions_with_sections": sum(
                1 for file in package for _ in internal_sections(file, public)
            ),
        },
        "code_lines": dict(sorted(by_folder.items())),
        "benchmarks": {
            "code_lines": sum(
                code_lines(file)
                for file in files("benchmarks")
                if not file.path.startswith("benchmarks/papers/")
            )
        },
    }


def budget() -> dict[str, dict[str, int]]:
    """Return the budget."""
    return tomllib.loads(BUDGET.read_text(encoding="utf-8"))


def as_toml(figures: dict[str, dict[str, int]]) -> str:
    """Format figures as the budget holds them."""
    lines = ["# The budget of `python tests/house/size.py`. Raise a figure in a commit of its own,"]
    lines += ["# which says why, and what left for it."]
    for table, values in figures.items():
        lines += ["", f"[{table}]", *(f"{name} = {value}" for name, value in values.items())]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Print the figures, or lower the budget to them."""
    figures = measured()
    known = budget() if BUDGET.is_file() else {}
    for table, values in figures.items():
        print(f"{table}:")
        for name, value in values.items():
            print(f"  {name:34s} {value:8,d}  budget {known.get(table, {}).get(name, 0):8,d}")
    if "--write" in arguments:
        least = {
            table: {n: min(v, known.get(table, {}).get(n, v)) for n, v in values.items()}
            for table, values in figures.items()
        }
        BUDGET.write_text(as_toml(least), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
