"""One name means one thing: no public class or function of the package is defined twice.

Counted are classes, functions and type aliases at the top of a file. A few names are the same on
purpose, since a folder asks each of its files for them, or since they are one thing seen from two
sides; each is listed with its reason.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from interp.cli.folder import commands_in

ROOT = Path(__file__).parents[2] / "interp"
# What each file of a folder defines under the same name, by the contract of the folder.
CONTRACTS = {
    "circuits/tasks": {"make"},  # the pairs of a task
    "model/sources": {"unwrap", "wrap"},  # the two directions of a source's adapter
    "report/atlas": {  # parts of the atlas as plain data: what results are, without their classes
        "Comparison",
        "Difference",
        "Evidence",
        "Example",
        "Link",
        "Metric",
        "Model",
        "Part",
        "Place",
        "Role",
        "Stack",
        "Statement",
        "Tokens",
    },
}


def definitions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name and kind of every public definition; the kind of an alias is what it stands for."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name, kind = node.name, "definition"
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, kind = node.targets[0].id, ast.unparse(node.value)
            if name.isupper() or not name[0].isupper() or kind.startswith(("TypeVar", "ParamSpec")):
                continue  # a constant, or a variable of types
        else:
            continue
        if not name.startswith("_"):
            yield name, kind


def counted(path: Path, name: str) -> bool:
    """Whether a definition is one that must be the only one of its name."""
    folder = path.parent.relative_to(ROOT).as_posix()
    if "commands" in path.parts and name in commands_in(path):
        return False  # the command of the function of that name
    if folder == "planted":
        return False  # builders of models named after the head that they plant
    return name != "main" and name not in CONTRACTS.get(folder, ())


def test_no_public_name_is_defined_twice() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
    begin = re.compile(r"^(?:(?:async )?def|class) (\w+)|^([A-Z]\w*)\b.*=", re.MULTILINE)
    names = {path: {a or b for a, b in begin.findall(text)} for path, text in texts.items()}
    times = Counter(n for path, found in names.items() for n in found if counted(path, n))
    several = {name for name, n in times.items() if n > 1 and name[0] != "_" and not name.isupper()}
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path, text in texts.items():
        for name, kind in definitions(ast.parse(text)) if names[path] & several else ():
            if counted(path, name):
                found[name][path.relative_to(ROOT).as_posix()] = kind
    twice = {
        name: sorted(kinds)
        for name, kinds in found.items()
        if len(kinds) > 1 and (len(set(kinds.values())) > 1 or "definition" in kinds.values())
    }
    assert not twice, f"defined in several files; rename all but one: {twice}"
