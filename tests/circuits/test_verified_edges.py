"""The default search: edges, backups and the smallest set, within a budget of forward passes."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
import torch
from beside import FOLDER, imported, needs

import interp
from interp.causal.game.game import Game
from interp.causal.game.verify import reuse_of
from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.circuits.find import find_circuit
from interp.circuits.methods import exact_patching, verified_edges
from interp.circuits.methods._measured_nodes import MeasuredNodes
from interp.circuits.methods.verified_edges import _edges, _stand_ins, _with_others
from interp.circuits.nodes import WHOLE, NodeSet
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.result import Circuit
from interp.circuits.set_evaluation import evaluate_set
from interp.circuits.smallest import connected, edges_between, smallest_set
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.core.statistics import ratio_intervals
from interp.model.model import Model

BUILT_IN = {
    "bystander": {("embed", "L0H3.v"), ("L0H3", "L1H0.k"), ("L1H0", "logits")},
    "backup": {("embed", "L0H3.v"), ("L0H3", "L1H0.k"), ("L1H0", "logits")},
}


@pytest.fixture(scope="module")
def backup_search():
    model = interp.load("planted:backup")
    task = make_contrast(model, "planted:backup", n=6)
    return model, task, find_circuit(model, task)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_smallest_set_is_what_was_built_in(name) -> None:
    model = interp.load(f"planted:{name}")
    task = make_contrast(model, f"planted:{name}", n=6)
    found = find_circuit(model, task)
    chosen = found.chosen
    assert (found.method, found.level) == ("verified_edges", "edge")
    assert set(chosen.edges) == BUILT_IN[name]
    assert set(chosen.nodes) == {a for a, _ in BUILT_IN[name]}
    assert chosen.kept == pytest.approx(1, abs=0.01)
    assert set(chosen.nodes) | {"logits"} <= {*found.nodes, "logits"}
    assert set(chosen.edges) <= set(found.edges)
    assert {told.partition(",")[0] for told in found.measured} == {"patched alone"}
    out = {f"patched with {head} out" for head in ("L1H0", "L2H0")}
    assert set(found.edge_measured) <= {"patched alone", *out}
    ties = [note for note in found.notes if note.startswith("a tie: L1H0 or L2H0")]
    assert len(ties) == (name == "backup")  # either does the task, and the set names one


def test_every_forward_pass_is_counted(monkeypatch, planted_bystander) -> None:
    """Rows that go through the model, divided by the number of pairs."""
    task = make_contrast(planted_bystander, "planted:bystander", n=6)
    rows, own = [0], Model.run
    reuse_of(planted_bystander)  # finds out once per model where logits may be left out

    def run(self, inputs, *args, **kwargs):
        given = self.inputs(inputs)
        rows[0] += len(given["input_ids"])
        return own(self, given, *args, **kwargs)

    monkeypatch.setattr(Model, "run", run)
    for budget in (0, 30):
        rows[0] = 0
        found = verified_edges(planted_bystander, task, max_evaluations=budget)
        assert rows[0] / len(task) == found.forwards
        assert found.forwards <= (budget or 600)
        told = sum(row["forwards"] for row in found.tables["forwards"])
        assert told == found.forwards
    rows[0] = 0
    assert exact_patching(planted_bystander, task).forwards == rows[0] / len(task) == 14


@pytest.mark.slow
def test_what_was_patched_is_what_exact_patching_gives(planted_bystander) -> None:
    task = make_contrast(planted_bystander, "planted:bystander", n=6)
    exact = exact_patching(planted_bystander, task, "edge")
    found = verified_edges(planted_bystander, task, max_evaluations=120)
    assert set(found.measured) == {"patched alone"}
    np.testing.assert_allclose(found.per_prompt, exact.per_prompt, atol=1e-4)
    known = dict(zip(exact.edges, exact.edges_per_prompt, strict=True))
    assert set(found.edges) > BUILT_IN["bystander"]
    assert set(found.edges_measured) == {"patched alone"}
    for edge, values in zip(found.edges, found.edges_per_prompt, strict=True):
        np.testing.assert_allclose(values, known[edge], atol=1e-4)
    heads = verified_edges(planted_bystander, task, "head")
    assert heads.edges == ()
    with pytest.raises(OptionError, match="max_evaluations=3; the clean and corrupted runs"):
        verified_edges(planted_bystander, task, max_evaluations=3)
    with pytest.raises(OptionError, match=r"faithful=1\.5, size=0; the share"):
        verified_edges(planted_bystander, task, faithful=1.5)


def test_an_estimate_is_no_measurement(planted_bystander) -> None:
    """With few passes nodes stay unmeasured: no score, no error, no place in the set."""
    task = make_contrast(planted_bystander, "planted:bystander", n=6)
    exact = exact_patching(planted_bystander, task)
    for budget in (6, 9, 13):
        found = find_circuit(planted_bystander, task, max_evaluations=budget)
        assert found.made["forwards"] <= budget
        patched = np.array([told == "patched alone" for told in found.measured])
        assert {*found.measured} == {"patched alone", "not patched"}
        np.testing.assert_allclose(
            found.score[patched], exact.per_prompt.mean(1)[patched], atol=1e-4
        )
        assert np.isnan(found.score[~patched]).all()
        assert np.isnan(found.sem[~patched]).all()
        assert np.isfinite(found.estimate).all()
        names = {name for name, known in zip(found.nodes, patched, strict=True) if known}
        assert set(found.ranking[: len(names)]) == names
        assert set(found.chosen.nodes) <= names
        assert set(found.edge_measured) <= {"patched alone"}
        assert "a larger max_evaluations= patches more" in found.notes[0]
        rows = found.nodes_to_pandas().set_index("node")
        assert rows["score"].isna().tolist() == (~patched).tolist()
        assert rows["estimate"].tolist() == found.estimate.tolist()
    few = find_circuit(planted_bystander, task, max_evaluations=6)
    assert "do not keep 0.8: what is missing is in nodes that were not patched" in few.notes[1]
    assert few.chosen.summary().endswith("0.8 was asked, which it does not keep")


def test_nodes_are_patched_where_estimates_may_be_most_wrong(planted_bystander) -> None:
    task = make_contrast(planted_bystander, "planted:bystander", n=6)
    nodes = MeasuredNodes(PatchedRuns(planted_bystander, task))
    size = dict.fromkeys(nodes.names, 0.0) | {"L0H0": 1.0, "L0H1": 0.5, "L1H1": 0.3, "mlp0": 0.2}
    nodes.estimates = np.array(list(size.values()))
    assert nodes.bounds() == size
    nodes.sem[nodes.names.index("mlp0")] = 0.5  # an estimate that differs from pair to pair
    assert nodes.bounds()["mlp0"] == pytest.approx(1.2)
    nodes.alone = {"L0H0": np.full(6, 1.0), "L1H0": np.full(6, 2.0)}  # estimated 1 and 0
    bound = nodes.bounds()
    assert bound["L0H1"] == 0.5  # estimates of its layer were right
    assert bound["L1H1"] == pytest.approx(2.3)  # and those of this one wrong by 2
    assert bound["embed"] == 2.0  # none of its kind was patched: as wrong as any


def test_every_node_of_a_small_model_is_patched_by_default() -> None:
    """Gradients give L1H7 a quarter of its effect, and the inert L0H2 a place before it."""
    model = interp.load("bundled:induction")
    task = make_contrast(model, "induction", n=16)
    found = find_circuit(model, task)
    assert len(found.nodes) == 19
    assert {told.partition(",")[0] for told in found.measured} == {"patched alone"}
    np.testing.assert_allclose(
        found.score, exact_patching(model, task).per_prompt.mean(1), atol=1e-4
    )
    assert set(found.edge_measured) == {"patched alone"}
    assert set(found.chosen.edges) <= set(found.edges)
    assert found.chosen.separated
    assert (found.chosen.pairs, found.chosen.apart) == (8, True)
    heads = [name for name in found.ranking if name[0] == "L"]
    assert heads.index("L1H7") == 1
    assert heads.index("L0H2") > 8


@pytest.mark.slow
def test_edges_that_are_too_many_are_not_named_as_chosen() -> None:
    model = interp.load("bundled:induction")
    task = make_contrast(model, "induction", n=4)
    found = find_circuit(model, task, max_evaluations=60, backups=False)
    assert not found.chosen.separated
    assert found.made["forwards"] <= 60
    assert len(found.chosen.edges) > len(found.edges) > 0
    (note,) = (note for note in found.notes if "not chosen one by one" in note)
    more = find_circuit(
        model,
        task,
        max_evaluations=int(note.partition("max_evaluations=")[2].split()[0]),
        backups=False,
    )
    assert more.chosen.separated
    assert set(more.chosen.edges) <= set(more.edges)


def test_an_edge_that_a_head_outside_the_set_hides_is_patched_without_that_head() -> None:
    """The first two nodes and L1H0 are the set; L2H0 stands in for L1H0 and is left out."""
    model = interp.load("planted:backup")
    task = make_contrast(model, "planted:backup", n=6)
    runs = PatchedRuns(model, task, 100)
    nodes = MeasuredNodes(runs)
    nodes.patch(nodes.names)
    nodes.estimate(3)
    assert nodes.backups()
    between = edges_between(runs.graph, ["embed", "L0H3", "L1H0"])
    chosen = NodeSet(("embed", "L0H3", "L1H0"), between, WHOLE, 0.8, separated=False)
    hidden = _stand_ins(nodes, chosen.edges)
    assert hidden[("L0H3", "L1H0.k")] == hidden[("L1H0", "logits")] == "L2H0"
    assert ("embed", "L0H3.v") not in hidden
    found, effects = _edges(nodes, chosen, hidden)
    assert effects[("L0H3", "L1H0.k")].mean() == pytest.approx(10, abs=0.1)  # alone 0
    assert set(found.edges) == BUILT_IN["backup"]
    more = set(_with_others(nodes, chosen))
    assert {edge for edge in more - set(between) if "L2H0" not in (edge[0], edge[1][:4])} == set()
    assert ("L0H3", "L2H0.k") in more


@pytest.mark.slow
def test_backups_are_found_by_the_default(backup_search) -> None:
    model, task, found = backup_search
    pairs = {(row["head"], row["for"]) for row in found.tables["backups"]}
    assert pairs == {("L2H0", "L1H0"), ("L1H0", "L2H0")}
    assert found.conditional[found.nodes.index("L2H0")] == pytest.approx(10, abs=0.1)
    none = find_circuit(model, task, backups=False)
    assert "backups" not in none.tables


@pytest.mark.slow
def test_where_no_head_stands_in_for_another_no_backup_is_named(planted_induction) -> None:
    for seed in range(4):
        task = make_contrast(planted_induction, "induction", n=6, seed=seed)
        assert find_circuit(planted_induction, task).tables["backups"] == []


def test_the_set_on_other_pairs(backup_search) -> None:
    """The gates of a game over heads are another implementation: the MLPs here do nothing."""
    model, _, found = backup_search
    fresh = make_contrast(model, "planted:backup", n=6, seed=1)
    measured = evaluate_set(model, found, fresh, n_random=5)
    assert measured.seen == 0
    value, low, high = measured.faithfulness
    assert low <= value <= high
    assert value == pytest.approx(1, abs=0.01)
    assert measured.completeness[0] == pytest.approx(0, abs=0.01)  # L2H0 is outside, see below
    assert measured.random.max() < 0.2
    game = Game(model, fresh.task, kind="resample")
    index = {label: i for i, label in enumerate(game.players.labels)}
    heads = [name for name in measured.nodes if name[0] == "L"]
    gates = torch.zeros(1 + len(heads), len(index)).double()
    for row, out in enumerate([None, *heads]):
        gates[row, [index[h] for h in heads if h != out]] = 1
    values = game.values(gates).numpy()
    for row, head in enumerate(heads, 1):
        want = values[0] - values[row]
        at = measured.nodes.index(head)
        np.testing.assert_allclose(measured.per_prompt[at], want, atol=1e-3)
    table = measured.wide().set_index("node")
    assert table["needed"].all()
    # L2H0, outside the set, does the task in the model without L1H0, but not in the set
    assert table.loc["L1H0", "unexplained"] == pytest.approx(1, abs=0.01)
    assert table.loc["L0H3", "unexplained"] == pytest.approx(0, abs=0.01)
    assert table.loc["L1H0", "backups"] == "L2H0"
    assert "something stands in for L1H0" in "\n".join(measured.summary())
    assert "keeps 1.00 [" in repr(measured)
    assert [row["figure"] for row in measured.figures()] == ["faithfulness", "completeness"]


@pytest.mark.slow
def test_a_set_of_any_ranking(planted_bystander, tmp_path) -> None:
    task = make_contrast(planted_bystander, "planted:bystander", n=6)
    plain = find_circuit(planted_bystander, task, "exact_patching", "edge")
    with pytest.raises(OptionError, match=r"has no smallest set; make it with smallest_set"):
        evaluate_set(planted_bystander, plain, task)
    found = smallest_set(planted_bystander, plain, task, faithful=0.9)
    assert set(found.chosen.edges) == BUILT_IN["bystander"]
    two = smallest_set(planted_bystander, plain, task, size=2)
    assert len(two.chosen.nodes) <= 2
    assert two.chosen.kept < 0.1  # one of three parts is missing
    heads = find_circuit(planted_bystander, task, "exact_patching")
    every = smallest_set(planted_bystander, heads, task).chosen
    assert set(every.edges) > BUILT_IN["bystander"]  # without scores no edge is left out
    found.to_json(tmp_path / "c.json")
    back = Circuit.from_json(tmp_path / "c.json")
    assert back.chosen == found.chosen
    assert back.edges_to_pandas()["in_set"].sum() == 3


def test_a_gradient_sees_the_backup_once_its_primary_is_patched(backup_search) -> None:
    from interp.circuits.methods._attribution import effects_without

    model, task, _ = backup_search
    runs = PatchedRuns(model, task)
    exact = runs.effects([runs.node_mask("L1H0"), runs.node_mask("L1H0", "L2H0")], "pairs")
    value, guess = runs.gradients(lambda pair: effects_without(pair, "L1H0"), "one", 1, 1)
    np.testing.assert_allclose(runs.clean - value, exact[0], atol=1e-4)
    at = runs.graph.index["L2H0"]
    np.testing.assert_allclose(guess[:, at], exact[1] - exact[0], rtol=0.05)


def test_edges_that_lead_nowhere_are_left_out() -> None:
    edges = [("embed", "L0H0.v"), ("L0H0", "logits"), ("L0H1", "logits"), ("embed", "mlp0")]
    assert connected(edges) == (("embed", "L0H0.v"), ("L0H0", "logits"))


def test_intervals_of_ratios_cover_the_ratio() -> None:
    whole = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(
        ratio_intervals(np.stack([0.5 * whole, 0 * whole]), whole), [[0.5, 0.5], [0, 0]]
    )
    rng, hits = np.random.default_rng(0), 0
    for _ in range(2000):
        whole = 3 + rng.normal(size=5)
        part = 0.6 * whole + rng.normal(size=5)
        low, high = ratio_intervals(part[None], whole)[0]
        hits += low <= 0.6 <= high
    assert 0.93 <= hits / 2000 <= 0.97  # percentiles of resampled pairs cover 0.84
    with pytest.raises(OptionError, match="needs at least two"):
        ratio_intervals(np.ones((1, 1)), np.ones(1))


def balanced(brackets: tuple[int, ...]) -> bool:
    depth = np.cumsum([1 - 2 * x for x in brackets])
    return depth[-1] == 0 and depth.min() >= 0


@pytest.mark.slow
@needs(FOLDER / "models" / "tracr-dyck1")
def test_the_set_of_a_compiled_program_has_only_parts_that_the_compiler_names() -> None:
    """Balanced brackets against others, either way round: every node and edge carries all of it."""
    imported(FOLDER / "models" / "toy_transformer.py")
    folder = FOLDER / "models" / "tracr-dyck1"
    model, rng = interp.load(folder), np.random.default_rng(0)
    truth = json.loads((folder / "ground_truth.json").read_text())["active_components"]
    pairs: list[tuple] = []
    for n in (2, 4, 6):
        every = list(product((0, 1), repeat=n))
        others = [x for x in every if not balanced(x)]
        for good in filter(balanced, every):
            bad = others[rng.integers(len(others))]
            pairs += [(good, bad, 1), (bad, good, 0)]
    clean, corrupted = (Prompts(tuple((2, *pair[at]) for pair in pairs)) for at in (0, 1))
    right = [pair[2] for pair in pairs]
    task = logit_difference(
        model, clean, right, [1 - x for x in right], corrupted=corrupted, name="dyck"
    )
    chosen = find_circuit(model, ContrastTask(task)).chosen
    assert {x.upper() for x in chosen.nodes} - {"EMBED"} <= set(truth)
    assert (len(chosen.nodes), len(chosen.edges)) == (10, 12)
    assert chosen.share.value == pytest.approx(1, abs=1e-4)
