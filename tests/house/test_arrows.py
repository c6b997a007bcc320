"""Imports run one way: a folder imports only folders above it, and the kernels nothing of interp.

Imports inside functions and imports for type checkers count like all others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORDER = (
    "core", "draw", "planted", "bundled", "model", "lens", "causal", "attribution", "heads",
    "safety", "syntax", "circuits", "report", "cli",
)  # fmt: skip
# Imports that still run up, each to be removed.
REMAIN = {
    ("attribution.evaluation.result", "report.faithfulness"),
    ("attribution.graph.streamed_rollout", "heads.engine"),
    ("attribution.result", "report.tokens"),
    ("core.display", "draw.page"),
    ("core.prompts", "model.model"),
    ("core.provenance", "model.model"),
    ("core.table", "draw.plot"),
    ("core.table", "report"),
    ("core.tokens", "model.model"),
    ("draw.sprite", "report.viewer.coding"),
    ("lens.direct", "attribution.target"),
    ("lens.finish", "attribution.example"),
    ("lens.logit", "attribution.target"),
    ("model.capture", "report.viewer"),
    ("model.capture", "report.viewer.cached"),
}


def files() -> list[Path]:
    return sorted(p for p in (ROOT / "interp").rglob("*.py") if p.parent != ROOT / "interp")


def imports(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "interp":
            yield from (f"interp.{a.name}" for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = ROOT.joinpath(*node.module.split("."))
            for name in (a.name for a in node.names):
                is_module = (inside / f"{name}.py").exists() or (inside / name).is_dir()
                yield f"{node.module}.{name}" if is_module else node.module


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_arrow_runs_up(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT / "interp").with_suffix("").parts)
    mine = ORDER.index(module.split(".")[0])
    for name in imports(path):
        _, _, other = name.partition("interp.")
        folder = other.split(".")[0]
        if name.startswith("interp.") and folder in ORDER:
            assert ORDER.index(folder) <= mine or (module, other) in REMAIN, f"imports {name}"


def test_the_kernels_import_nothing_of_interp() -> None:
    for path in (ROOT / "kernels" / "interp_kernels").rglob("*.py"):
        assert not [n for n in imports(path) if n.split(".")[0] == "interp"], path


def test_the_folders_are_those_of_the_order() -> None:
    assert {p.name for p in (ROOT / "interp").iterdir() if p.is_dir()} - {"__pycache__"} == {*ORDER}
    assert {p.name for p in (ROOT / "interp").glob("*.py")} == {"__init__.py", "__main__.py"}
