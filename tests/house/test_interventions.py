"""Interventions are declared once: no other file of the package compares with the name of one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from interp.causal.game.interventions import INTERVENTIONS, ON_PAIRS

ROOT = Path(__file__).parents[2] / "interp"
DECLARED = "causal/game/interventions.py"
# words that mean something else in one file
OTHERS = {
    ("attribution/methods/integrated_gradients.py", "zero"): "baseline of the embeddings",
    ("dictionaries/training_loop.py", "resample"): "what becomes of dead features",
}


def compared(tree: ast.AST) -> Iterator[str]:
    """Strings that a file compares with, looks for or matches."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts: list[ast.expr] = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        else:
            parts = []
        for part in parts:
            items = part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part]
            yield from (x.value for x in items if isinstance(x, ast.Constant))  # type: ignore[misc]


def lists(tree: ast.AST) -> Iterator[set[str]]:
    """Strings of each list, tuple, set, and of the keys of each mapping."""
    for node in ast.walk(tree):
        items: list = []
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            items = node.elts
        elif isinstance(node, ast.Dict):
            items = node.keys
        yield {x.value for x in items if isinstance(x, ast.Constant) and isinstance(x.value, str)}


def test_no_other_file_asks_for_an_intervention_by_name_or_lists_them() -> None:
    found, excused = [], set()
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name == DECLARED:
            continue
        text = path.read_text(encoding="utf-8")
        if not any(f'"{word}"' in text for word in INTERVENTIONS):
            continue
        tree = ast.parse(text)
        for word in set(compared(tree)) & set(INTERVENTIONS):
            excused.add((name, word))
            if (name, word) not in OTHERS:
                found.append(f"{name} compares with {word!r}")
        found += [
            f"{name} lists {sorted(x)}" for x in lists(tree) if len(x & set(INTERVENTIONS)) > 1
        ]
    assert not found, "ask the declaration instead:\n" + "\n".join(found)
    assert excused == set(OTHERS)


def test_pages_and_evaluations_have_each() -> None:
    for name, entry in INTERVENTIONS.items():
        assert name == entry.name
        assert bool(entry.page) != bool(entry.why_no_page), name
        assert bool(entry.edit or entry.live), name
    assert set(ON_PAIRS.values()) == set(INTERVENTIONS)
