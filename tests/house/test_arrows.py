"""Imports run one way, and the kernels import nothing of the toolkit."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOM = {
    "base": (
        "errors", "head", "columns", "files", "resources", "page", "display", "sign",
        "random_state", "__init__", "order", "clusters", "chance", "calibration",
    ),
    "models": ("planted", "bundled"),
    "model": ("model", "edits", "prompts", "tokens"),
    "capture": ("capture", "generation", "provenance"),
    "table": ("table", "table_display", "merge"),
    "analysis": (
        "analysis", "asked", "room", "catalogue", "own_file", "own_function", "targets", "engine",
        "estimate", "scoring", "score_rows", "random_weights",
        "heads", "weights", "special", "needle", "causal", "attribution", "flow", "lens",
        "outliers", "safety", "syntax", "circuit", "discovery",
        "viewer",
    ),
    "show": ("plot", "report", "store"),
    "commands": ("cli", "commands", "__main__"),
}  # fmt: skip
MAY = {
    "base": {"base"},
    "models": {"base", "models"},
    "model": {"base", "model"},
    "capture": {"base", "model", "capture"},
    "table": {"base", "table"},
    "analysis": {"base", "model", "capture", "table", "analysis"},
    "show": {"base", "table", "show"},
    "commands": set(ROOM),
}
# Doors: a method that calls the room above it, imported when it is called.
DOORS = {
    ("model", "capture"): "Model.capture and Model.generate",
    ("model", "models"): "load('bundled:...') and load('planted:...')",
    ("table", "show"): "HeadTable.plot",
    ("capture", "analysis"): "a cache shows its patterns with the viewer",
    ("analysis", "show"): "Faithfulness.save writes its page",
    ("analysis", "models"): "the sentences of bundled:deceive, and tasks of planted models",
}


def room_of(module: str) -> str:
    first = [*module.split("."), "__init__"][1]
    return next(room for room, names in ROOM.items() if first in names)


def imports(path: Path) -> list[tuple[str, bool]]:
    """Modules of ours that a file imports, and whether only inside a function; types left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node  # type: ignore[attr-defined]
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from interp import planted` is an import of that room
            names = (
                [f"interp.{a.name}" for a in node.names]
                if node.module == "interp"
                else [node.module]
            )
        up, inside, for_types = node, False, False
        while (up := getattr(up, "parent", None)) is not None:
            inside |= isinstance(up, ast.FunctionDef)
            for_types |= isinstance(up, ast.If) and "TYPE_CHECKING" in ast.unparse(up.test)
        if not for_types:
            found += [(n, inside) for n in names if n.split(".")[0] in ("interp", "interp_kernels")]
    return found


def files() -> list[Path]:
    return sorted((ROOT / "interp").rglob("*.py"))


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_arrow_runs_up(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    mine = "base" if module == "interp" else room_of(module)
    known = {p.stem for p in (ROOT / "interp").glob("*.py")} | {
        p.name for p in (ROOT / "interp").iterdir() if p.is_dir()
    }
    for name, inside in imports(path):
        if not name.startswith("interp."):
            continue
        if name.split(".")[1] not in known:
            continue  # a name of interp itself, such as __version__
        other = room_of(name)
        allowed = other in MAY[mine] or (inside and (mine, other) in DOORS)
        assert allowed, f"{module} ({mine}) imports {name} ({other})"


def test_the_kernels_import_nothing_of_interp() -> None:
    for path in (ROOT / "kernels" / "interp_kernels").rglob("*.py"):
        assert not [n for n, _ in imports(path) if n.split(".")[0] == "interp"], path


def test_every_file_has_a_room() -> None:
    for path in files():
        parts = path.relative_to(ROOT).with_suffix("").parts
        assert parts == ("interp", "__init__") or room_of(".".join(parts))
