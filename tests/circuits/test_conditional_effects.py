"""Effects of a node by itself and with another head out: two columns in every form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from circuits.test_circuit_result import made

import interp
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit, score_nodes
from interp.circuits.methods import exact_patching, screen_verify
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast
from interp.core.errors import StoreError


@pytest.fixture(scope="module")
def backup():
    model = interp.load("planted:backup")
    return model, make_contrast(model, "planted:backup", n=6)


@pytest.fixture(scope="module")
def backup_circuit(backup) -> Circuit:
    return find_circuit(*backup, "screen_verify")


def test_a_score_is_what_patching_the_node_alone_gives(backup) -> None:
    """Of every head, backups included: the same number as that of exact patching, in its unit."""
    alone, screened = exact_patching(*backup), screen_verify(*backup)
    assert alone.unit == screened.unit
    assert screened.unmeasured == ()
    for name, values in zip(screened.nodes, screened.per_prompt, strict=True):
        np.testing.assert_allclose(values, alone.per_prompt[alone.nodes.index(name)], atol=1e-4)
    assert screened.conditional is not None
    have = {n for n, x in zip(screened.nodes, screened.conditional, strict=True) if x[0] == x[0]}
    assert have == {"L1H0", "L2H0"}
    for row in screened.tables["backups"]:
        at = screened.nodes.index(row["head"])
        assert screened.conditional[at].mean() == pytest.approx(row["without_it"])
        assert row["alone"] == pytest.approx(screened.per_prompt[at].mean(), abs=1e-5)


def test_backups_still_lead_the_order(backup_circuit) -> None:
    assert set(backup_circuit.ranking[:4]) == {"L1H0", "L2H0", "L0H3", "embed"}
    assert abs(backup_circuit.score[backup_circuit.nodes.index("L2H0")]) < 0.01
    assert backup_circuit.largest[backup_circuit.nodes.index("L2H0")] > 5
    assert "L2H0" in backup_circuit.top(3, heads_only=True).nodes
    first = backup_circuit.top(4)  # all four are as large, up to rounding
    known = [x for x, on in zip(first.conditional, first.conditional_on, strict=True) if on]
    assert {on for on in first.conditional_on if on} == {"L1H0", "L2H0"}
    assert (np.array(known) > 5).all()
    assert "with L2H0 out" in repr(backup_circuit)


@pytest.mark.parametrize("form", ["json", "toml"])
def test_both_columns_come_back_from_files(backup_circuit, tmp_path, form) -> None:
    path = tmp_path / f"c.{form}"
    getattr(backup_circuit, f"to_{form}")(path)
    back = getattr(Circuit, f"from_{form}")(path)
    assert back.to_dict() == backup_circuit.to_dict()
    np.testing.assert_array_equal(back.conditional, backup_circuit.conditional)
    assert back.conditional_on == backup_circuit.conditional_on
    assert back.measured == backup_circuit.measured
    assert back.ranking == backup_circuit.ranking


def test_other_forms_say_both(backup_circuit) -> None:
    at = backup_circuit.nodes.index("L2H0")
    said = f"{backup_circuit.score[at]:.4g}, {backup_circuit.conditional[at]:.4g} with L1H0 out"
    assert said in backup_circuit.to_dot()
    assert said in backup_circuit.to_mermaid()
    own, other = backup_circuit.score[at], backup_circuit.conditional[at]
    both = f"{own:.4g} logits, {other:.4g} logits with L1H0 out"
    assert both in backup_circuit.to_svg()
    assert both in str(backup_circuit.plot().data[-1].hovertext)
    node = backup_circuit.to_networkx().nodes["L2H0"]
    assert node["conditional_on"] == "L1H0"
    assert node["conditional"] == pytest.approx(backup_circuit.conditional[at])
    row = backup_circuit.nodes_to_pandas().set_index("node").loc["L2H0"]
    assert (row["conditional_on"], row["measured"]) == ("L1H0", "patched alone, and with L1H0 out")


def test_files_of_another_format_are_refused_in_one_line(tmp_path) -> None:
    told = made().to_dict()
    for other in ("interp circuit 1", "interp circuit 3"):
        with pytest.raises(StoreError, match="of another version of interp") as caught:
            Circuit.from_dict(told | {"format": other})
        assert "\n" not in str(caught.value)


def test_what_was_never_patched_has_no_score(backup, tmp_path) -> None:
    model, task = backup
    found = find_circuit(model, task, "screen_verify", candidates=2, backups=False)
    out = [n for n, s in zip(found.nodes, found.score, strict=True) if np.isnan(s)]
    assert len(out) == len(found.nodes) - 2
    assert set(found.ranking[2:]) == set(out)
    for name in out:
        assert found.measured[found.nodes.index(name)] == "not patched"
        assert np.isfinite(found.estimate[found.nodes.index(name)])
        assert np.isnan(found.sem[found.nodes.index(name)])
        assert found.said(found.nodes.index(name)) == "not patched"
    for form in (found.to_dot(), found.to_mermaid(), found.to_svg(), str(found.plot())):
        assert "nan" not in form
    found.to_toml(tmp_path / "c.toml")
    back = Circuit.from_toml(tmp_path / "c.toml")
    assert back.to_dict() == found.to_dict()
    others = make_contrast(model, "planted:backup", n=4, seed=1)
    assert evaluate_circuit(model, found, others, n_random=2)


def test_every_method_says_how_it_measured(backup) -> None:
    said = {
        "exact_patching": "patched alone",
        "attribution_patching": "estimated by gradients, not patched",
        "svd_trace": "traced through attention in one run, not patched",
    }
    for method, told in said.items():
        measured = score_nodes(*backup, method).measured
        assert measured == told


@pytest.mark.slow
def test_the_screen_and_the_files_have_a_column_for_each(run, tmp_path) -> None:
    args = (
        "circuit",
        "planted:backup",
        "--task",
        "planted:backup",
        "-n",
        6,
        "--random",
        2,
        "--top",
        4,
        "--method",
        "screen_verify",
    )
    shown = run(*args, "-o", tmp_path).stdout.splitlines()
    assert shown[2].split()[:2] == ["node", "score"]
    assert "with another head out" in shown[2]
    assert "  held-out pairs: effect of each node, patched (logits)" in shown
    row, on_other_pairs = (line for line in shown if line.split()[:1] == ["L2H0"])
    assert row.count("(L1H0 out)") == on_other_pairs.count("(L1H0 out)") == 1
    assert "patched alone, and with L1H0 out" in row
    folder = tmp_path / "planted-backup"
    nodes = pd.read_csv(folder / "nodes.csv").set_index("node")
    assert abs(nodes.loc["L2H0", "score"]) < 0.01
    assert nodes.loc["L2H0", "conditional"] > 5
    assert np.isnan(nodes.loc["L0H3", "conditional"])
    assert nodes.loc["L0H3", "measured"] == "patched alone"
    page = (folder / "circuit.html").read_text()
    assert "conditional_on" in page
    assert "patched alone, and with L1H0 out" in page
