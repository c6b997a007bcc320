"""What a circuit was found on and what it is measured on are told apart."""

from __future__ import annotations

import numpy as np
import pytest

import interp
from interp.circuits.contrast import hashes
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit
from interp.circuits.methods import exact_patching
from interp.circuits.patched import patch_first
from interp.circuits.plan import Plan
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast


@pytest.fixture(scope="module")
def backup_model():
    return interp.load("planted:backup")


@pytest.fixture(scope="module")
def held_out_circuit(backup_model) -> Circuit:
    return find_circuit(backup_model, make_contrast(backup_model, "planted:backup", n=6, seed=1))


def test_pairs_that_were_seen_are_counted(backup_model, held_out_circuit) -> None:
    same = make_contrast(backup_model, "planted:backup", n=6, seed=1)
    other = make_contrast(backup_model, "planted:backup", n=6, seed=2)
    assert held_out_circuit.made["pairs"] == hashes(same)
    assert not set(hashes(same)) & set(hashes(other))
    measured = evaluate_circuit(backup_model, held_out_circuit, same, n_random=2)
    assert measured.seen == 6
    assert "6 of 6 pairs it was found on" in repr(measured)
    fresh = evaluate_circuit(backup_model, held_out_circuit, other, n_random=2)
    assert fresh.seen == 0
    assert "found on" not in repr(fresh)


def test_fresh_pairs_are_others_whatever_the_seed(backup_model, held_out_circuit) -> None:
    """Seed 0 measures on the pairs of seed 1, on which this circuit was found."""
    start = Plan("planted:backup", 6, 0)
    assert hashes(start.fresh(backup_model)) == held_out_circuit.made["pairs"]
    plan = start.after(held_out_circuit)
    fresh = plan.fresh(backup_model)
    assert len(fresh) == 6
    assert not set(hashes(fresh)) & set(held_out_circuit.made["pairs"])


@pytest.mark.slow
def test_where_there_are_no_other_pairs_it_is_said(backup_model, held_out_circuit) -> None:
    from dataclasses import replace

    start = Plan("planted:backup", 6, 0)
    every = {
        h
        for s in range(40)
        for h in hashes(make_contrast(backup_model, "planted:backup", n=6, seed=s))
    }
    plan = replace(start, seen=frozenset(every))
    fresh = plan.fresh(backup_model)
    assert len(fresh) == 6
    assert "on 6 pairs, 6 of which it was found on" in plan.summary(6, 6)


def test_the_first_nodes_are_patched_on_other_pairs(backup_model, held_out_circuit) -> None:
    """As exact patching does there, alone and with the head that the circuit names."""
    other = make_contrast(backup_model, "planted:backup", n=6, seed=2)
    patched = patch_first(backup_model, held_out_circuit, other, 5)
    assert patched.unit == "logits"
    assert [row["node"] for row in patched] == list(held_out_circuit.ranking[:5])
    exact = exact_patching(backup_model, other)
    for row in patched:
        values = exact.per_prompt[exact.nodes.index(row["node"])]
        assert row["effect"] == pytest.approx(values.mean(), abs=1e-4)
        assert row["sem"] == pytest.approx(values.std(ddof=1) / np.sqrt(6), abs=1e-4)
        assert row["n"] == 6
        backup = row["node"] in ("L1H0", "L2H0")
        assert (row["conditional"] > 5) if backup else np.isnan(row["conditional"])
    table = patched.to_pandas()
    assert list(table["node"]) == list(held_out_circuit.ranking[:5])
    assert (table["unit"] == "logits").all()


def test_patched_nodes_are_kept_and_found_again(
    backup_model, held_out_circuit, tmp_path, monkeypatch
) -> None:
    other = make_contrast(backup_model, "planted:backup", n=6, seed=2)
    first = patch_first(backup_model, held_out_circuit, other, 3, resume=tmp_path)
    from interp.circuits.methods import _exact

    def never(*given, **options):
        raise AssertionError("nothing is run again")

    monkeypatch.setattr(_exact.EdgeForward, "run", never)
    again = patch_first(backup_model, held_out_circuit, other, 3, resume=tmp_path)
    assert str(again) == str(first)
