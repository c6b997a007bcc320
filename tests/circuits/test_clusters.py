"""Pairs of one template are a cluster: in causal tables, and in circuits of four templates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from circuits.contrasts import induction_pairs

from interp.causal import leave_one_out
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit
from interp.circuits.methods._checked import _effect
from interp.circuits.methods._measured_nodes import stand_ins
from interp.circuits.patched import patch_first
from interp.core.clusters import cluster_summary
from interp.report.printed.circuit import _figures


@pytest.fixture(scope="module")
def ten_pairs(planted_bystander):
    return induction_pairs(planted_bystander, 10, induction=("L1H0",), previous_token=("L0H3",))


def of_templates(pairs, number):
    return replace(pairs, templates=tuple(str(i % number) for i in range(len(pairs))))


def test_templates_are_clusters_of_causal_tables(planted_bystander, ten_pairs) -> None:
    shared = of_templates(ten_pairs, 3)
    assert shared.task.clusters == tuple(f"template {i % 3}" for i in range(10))
    found = leave_one_out(planted_bystander, shared.task, null="none")
    assert set(found.to_pandas()["clusters"]) == {3}
    told = cluster_summary(found.per_prompt.T, shared.templates).sem
    np.testing.assert_allclose(found.sem, told)
    assert shared.some([0, 3, 5]).task.clusters == ("template 0", "template 0", "template 2")
    for templates in ((), ("",) * 10, tuple(map(str, range(10)))):
        assert replace(ten_pairs, templates=templates).task.clusters is None


def test_intervals_of_circuits_draw_four_templates_or_say_why_not(
    planted_bystander, ten_pairs
) -> None:
    plain = find_circuit(planted_bystander, ten_pairs, "attribution_patching", "edge")
    assert ten_pairs.clusters is None
    assert ten_pairs.dependence == ""
    for number in (3, 5):
        task = of_templates(ten_pairs, number)
        found = find_circuit(planted_bystander, task, "attribution_patching", "edge")
        measured = evaluate_circuit(planted_bystander, found, task, n_random=2)
        lines = "\n".join(_figures(measured, "held out"))
        assert task.dependence in lines
        assert task.dependence in measured.figures()[0]["what"]
        if number == 3:
            assert "10 pairs in only 3 templates, fewer than 4" in lines
            np.testing.assert_array_equal(found.sem, plain.sem)
        else:
            assert "intervals resample whole templates: 10 pairs in 5" in lines
            assert (found.sem != plain.sem).any()
            one = replace(measured, clusters=None)
            part = measured.inside - measured.empty
            assert measured.share_interval(part) != one.share_interval(part)
            [patched] = patch_first(planted_bystander, found, task, k=1)
            [own] = patch_first(planted_bystander, found, ten_pairs, k=1)
            assert patched["effect"] == own["effect"]
            assert patched["sem"] != own["sem"]


def test_the_gap_of_pairs_has_the_error_of_templates(planted_bystander, ten_pairs) -> None:
    task = of_templates(ten_pairs, 5)
    clean, corrupted = task.values(planted_bystander)
    expected = cluster_summary((clean - corrupted)[:, None], task.templates)
    assert task.gap(planted_bystander) == pytest.approx((expected.score[0], expected.sem[0]))
    difference = clean - corrupted
    assert ten_pairs.gap(planted_bystander)[1] == float(difference.std(ddof=1) / np.sqrt(10))


def test_errors_of_checks_inside_a_method_are_those_of_templates(
    planted_bystander, ten_pairs
) -> None:
    values = np.random.default_rng(1).normal(size=10)
    task = of_templates(ten_pairs, 5)
    expected = cluster_summary(values[:, None], task.templates).sem[0]
    assert _effect(values, 1.0, task)["sem"] == pytest.approx(expected)
    assert _effect(values, 1.0, ten_pairs)["sem"] == float(values.std(ddof=1) / np.sqrt(10))
    effect = np.zeros((2, 2, 10))
    effect[0, 1] = 3 + values
    row = stand_ins(effect, ["L0H0", "L1H0"], ["L1H0"], 1.0, task)[0]
    assert row["sem"] == pytest.approx(expected)
