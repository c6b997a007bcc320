"""A page for each kind of method: its picture, its table, and the documentation of each method."""

from __future__ import annotations

import inspect
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import method_pictures
import method_table

from interp.core.registry import REGISTRIES

HERE = Path(__file__).parent
# Their purposes and sources are not in the docstrings that follow the table.
IN_TABLE = {"importance", "replacement"}


def names() -> list[str]:
    """Return the names of the pages, in the order of the table."""
    return [part.replace(" ", "_") for part in method_table.SECTIONS]


def page(name: str) -> str:
    """Return one page as Markdown."""
    part = next(p for p in method_table.SECTIONS if p.replace(" ", "_") == name)
    title, about = method_table.SECTIONS[part]
    rows = method_table.rows(part)
    if part not in IN_TABLE:
        rows = [replace(row, not_for="", source="") for row in rows]
    parts = [
        f"# {title}",
        about,
        f"![{title}](../method_pictures/{name}.svg)",
        f"*{method_pictures.caption(name)}*",
        method_table.table(part, rows),
        "## In detail",
        *(f"::: {path}" for path in objects(part)),
    ]
    return "\n\n".join(parts) + "\n"


def objects(part: str) -> list[str]:
    """Return the import paths of the functions of one section, each once."""
    for registry in REGISTRIES:
        if part in registry.groups:
            entries = [e for e in registry.values() if e.group == part]
            return [f"{_module(e.path)}.{e.name}" for e in entries]
    if part == "importance":
        calls = (question.call for question in method_table.QUESTIONS.values())
        return list(dict.fromkeys(_defined(method_table.called(call)) for call in calls))
    if part == "replacement":
        parts = [import_module(f"interp.model.{x}edits") for x in ("", "pattern_")]
        named = ("zero", "mean", "resample", "uniform", "gate")
        found = (next(getattr(p, name) for p in parts if hasattr(p, name)) for name in named)
        return [_defined(x) for x in found]
    package = method_table.PACKAGES[part]
    own = [(package, name) for name in method_table.functions(package)]
    beside = method_table.BESIDE.get(part, [])
    return [_defined(getattr(import_module(p), name)) for p, name in own + beside]


def _defined(function: object) -> str:
    plain = inspect.unwrap(function)  # type: ignore[arg-type]
    return f"{plain.__module__}.{plain.__qualname__}"


def _module(path: Path) -> str:
    return ".".join(path.relative_to(HERE.parent).with_suffix("").parts)
