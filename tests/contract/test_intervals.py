"""Every function that returns an interval, by a formula written here or in a test named here.

The formulas of `interp/core/` are held by `tests/core/test_*_formulas.py`. A function
elsewhere that asks it for an interval still chooses values, level, clusters and degrees of freedom;
`test_every_interval_is_held` finds such functions and fails on one that nothing holds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract import (
    intervals_of_circuits,
    intervals_of_effects,
    intervals_of_heads,
    intervals_of_subjects,
)
from contract.interval_oracles import ORACLES

ROOT = Path(__file__).parents[2]
ASKED = {
    "percentile_interval",
    "finite_interval",
    "prediction_band",
    "share_interval",
    "fraction_interval",
    "difference_of_shares",
    "half_width",
    "around",
    "bootstrap_interval",
    "bootstrap_bounds",
    "ratio_intervals",
    "auroc_interval",
    "mean_intervals",
    "site_intervals",
    "interval_between",
}

"""Functions of the core that return an interval."""
ELSEWHERE = {
    "cache/cards.py:token_budgets": "cache/test_plan.py::test_budgets_by_hand",
    "causal/checkpoint/certificate.py:judged_task": "causal/test_certificate.py::"
    "test_random_sets_are_drawn_in_the_units_of_the_removal",
    "causal/importance.py:make_importance": "causal/test_intervals.py::"
    "test_the_table_of_an_ablation_states_the_intervals_of_its_players",
    "circuits/set_evaluation.py:evaluate_set": "circuits/test_bogus_sets.py::"
    "test_heads_of_which_one_is_enough_are_named",
    "heads/score_rows.py:_records": "heads/test_score_intervals.py::"
    "test_the_interval_of_every_score_is_the_one_of_its_values_over_clusters",
    "profiles/verdict_numbers.py:VerdictNumbers.counted": "profiles/test_sentence_reader.py::"
    "test_the_reader_picks_the_text_on_which_the_head_acts",
    "profiles/task_verdict.py:judge_task": "profiles/test_judge_tasks.py::"
    "test_the_interval_is_that_of_redrawn_pairs",
    "profiles/variable_claim.py:_wilson": "profiles/test_judge_variables.py::"
    "test_the_interval_is_that_of_wilson_over_pairs_or_templates",
    "profiles/reading_clusters.py:_Judge.behaviours": "profiles/test_reading_clusters.py::"
    "test_false_splits_and_missed_ones_are_rare",
    "profiles/reading_clusters.py:_Judge.behaviours.above": "profiles/test_reading_clusters.py::"
    "test_false_splits_and_missed_ones_are_rare",
}

"""Functions that need a model or a whole result, and the tests that hold them."""
FORMULAS = (intervals_of_circuits, intervals_of_effects, intervals_of_heads, intervals_of_subjects)
"""The formulas, which register themselves."""


def asking() -> Iterator[str]:
    """Name every function outside the core that asks the core for an interval."""
    for path in sorted((ROOT / "interp").rglob("*.py")):
        file = path.relative_to(ROOT / "interp").as_posix()
        text = path.read_text(encoding="utf-8")
        if file.startswith("core/") or not any(name in text for name in ASKED):
            continue
        tree = ast.parse(text)
        given = {
            a.asname or a.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("interp.core")
            for a in node.names
            if a.name in ASKED
        }
        yield from _asking(tree, given, f"{file}:")


def _asking(node: ast.AST, given: set[str], within: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{within}{child.name}"
            calls = {getattr(x.func, "id", "") for x in ast.walk(child) if isinstance(x, ast.Call)}
            if isinstance(child, ast.FunctionDef) and calls & given:
                yield name
            yield from _asking(child, given, f"{name}.")
        else:
            yield from _asking(child, given, within)


def test_every_interval_is_held() -> None:
    """A new function with an interval needs a formula here, or the name of its test."""
    found = set(asking())
    assert found <= {*ORACLES, *ELSEWHERE}
    assert set(ELSEWHERE) <= found
    for test in ELSEWHERE.values():
        file, _, name = test.partition("::")
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {re.escape(name)}\(", text, re.MULTILINE), test


@pytest.mark.parametrize("check", dict.fromkeys(ORACLES.values()), ids=lambda x: x.__name__)
def test_intervals_are_those_of_their_formulas(check: Callable[[], None]) -> None:
    check()
