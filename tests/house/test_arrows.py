"""Imports run one way: a file imports from its own folder and earlier ones, and never in a circle.

Imports inside functions and imports for type checkers count like all others. The few places that
look a module up by name when they run are registries and public faces; they are listed here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
from together import over

ROOT = Path(__file__).parents[2]
ORDER = (
    "core",
    "draw",
    "planted",
    "bundled",
    "model",
    "lens",
    "causal",
    "attribution",
    "heads",
    "cache",
    "text",
    "alignment",
    "vision",
    "safety",
    "probes",
    "syntax",
    "dictionaries",
    "policies",
    "circuits",
    "profiles",
    "testing",
    "report",
    "cli",
)
BY_NAME = {
    "core/public_names.py": "public face of a folder, and a folder whose files declare analyses",
    "core/presenter.py": "presenters of results: forms that rooms and reports name",
    "core/registry.py": "registry of declarations: a folder of files",
    "circuits/tasks/named.py": "registry of contrast tasks: a folder of files",
    "cli/folder.py": "registry of commands: a folder of files",
    "cli/run.py": "public functions from which commands are made",
    "cli/installed_commands.py": "registry of the commands of installed packages",
    "model/loading.py": "modules that a user names with --import",
    "planted/__init__.py": "registry of planted models: a folder of files",
    "model/sources/packages.py": "registry of the packages that models come from",
    "attribution/graph/flow_backends.py": "OR-tools, where it is installed",
    "syntax/categories/_source.py": "tree-sitter and the grammar of a language",
}
"""Files that import a module by its name, with the reason."""


MODEL_ORDER = ("calls", "mixers", "hooks", "locate", "sources", "recorded")
"""Folders inside `interp/model`, in the order in which they import one another."""


def module_of(path: Path) -> str:
    """`core.table` of `interp/core/table.py`."""
    return ".".join(path.relative_to(ROOT / "interp").with_suffix("").parts)


FILES = {
    module_of(p): p for p in sorted((ROOT / "interp").rglob("*.py")) if p.parent != ROOT / "interp"
}


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Modules that a file imports, wherever the import stands."""
    return tuple(_imports(ast.parse(path.read_text(encoding="utf-8"))))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node; expressions hold no import, and are most of a tree."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level + (node.module or "")
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = ROOT.joinpath(*node.module.split("."))
            for name in (a.name for a in node.names):
                is_module = (inside / f"{name}.py").exists() or (inside / name).is_dir()
                yield f"{node.module}.{name}" if is_module else node.module


def ours(path: Path) -> set[str]:
    """Modules of the package that a file imports, without the leading `interp.`."""
    return {name.partition(".")[2] for name in imports(path) if name.startswith("interp.")}


@over("module", FILES)
def test_no_import_runs_up(module: str) -> None:
    folder, *inside = module.split(".")
    rank = ORDER.index("cli" if "commands" in inside else folder)  # a subject has its commands
    assert not [name for name in imports(FILES[module]) if name.startswith(".")], "relative import"
    for other in ours(FILES[module]):
        folder = other.split(".")[0]
        if folder in ORDER:
            assert ORDER.index(folder) <= rank, f"imports {other}, of a later folder"


def test_the_folders_inside_the_model_stand_in_order_too() -> None:
    rank = {name: at for at, name in enumerate(MODEL_ORDER)}
    assert {
        p.name for p in (ROOT / "interp" / "model").iterdir() if (p / "__init__.py").exists()
    } == {*MODEL_ORDER}
    for module, path in FILES.items():
        top, inner = (*module.split("."), "", "")[:2]
        if top != "model" or inner not in rank:
            continue
        for other in imports(path):
            _, _, where, *_ = (*other.split("."), "", "", "")
            above = other.startswith("interp.model.") and rank.get(where, -1) > rank[inner]
            assert not above, f"{module} imports {other}"


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = nx.DiGraph()
    for module, path in FILES.items():
        if path.name != "__init__.py":
            graph.add_edges_from((module, other) for other in ours(path) - {module})
    circles = [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert not circles, "take the common part out, or type one side by a protocol"


def test_modules_are_looked_up_by_name_only_where_it_is_said_why() -> None:
    calls = {
        str(path.relative_to(ROOT / "interp"))
        for path in FILES.values()
        if "import_" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and node.id in ("import_module", "__import__")
    }
    assert calls == {*BY_NAME}


def test_the_kernels_import_nothing_of_interp() -> None:
    for path in (ROOT / "kernels" / "interp_kernels").rglob("*.py"):
        assert not [n for n in imports(path) if n.split(".")[0] == "interp"], path


def test_the_folders_are_those_of_the_order() -> None:
    assert {p.name for p in (ROOT / "interp").iterdir() if p.is_dir()} - {"__pycache__"} == {*ORDER}
    assert {p.name for p in (ROOT / "interp").glob("*.py")} == {"__init__.py", "__main__.py"}
