"""Every measure of a set that is printed tells ten bogus sets from the truth, on known models."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import interp
from interp.circuits.edge_evaluation import evaluate_edges
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit
from interp.circuits.nodes import WHOLE, NodeSet
from interp.circuits.removals import INPUT
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.result import Circuit
from interp.circuits.set_evaluation import SetEvaluation, evaluate_set
from interp.circuits.smallest import connected, edges_between
from interp.circuits.tasks import make_contrast

Nodes = tuple[str, ...]
SLOW = pytest.mark.slow
KNOWN = {  # the nodes of the circuit; all others do next to nothing
    "trained:induction": ("L0H1", "L1H2"),
    "trained:names": ("L0H2", "L1H0", "L2H3"),
    "trained:suppression": ("L0H2", "L1H1"),
    "planted:induction": ("L0H3", "L1H0"),
    "planted:backup": ("L0H3", "L1H0", "L2H0"),
}
QUICK = ("trained:induction", "trained:names")
SOME = [m if m in QUICK else pytest.param(m, marks=SLOW) for m in KNOWN]


@cache
def found_in(name: str) -> tuple[interp.Model, Circuit]:
    model = interp.load(name)
    return model, find_circuit(model, make_contrast(model, name, n=4), "attribution_patching")


def writers(name: str) -> Nodes:
    return tuple(ResidualGraph.of(found_in(name)[0]).writers)


def of_nodes(name: str, nodes: Nodes) -> Circuit:
    """The set of some nodes and all edges between them, in a circuit that ranks them first."""
    model, circuit = found_in(name)
    graph = ResidualGraph.of(model)
    nodes = tuple(node for node in graph.writers if node in nodes)
    chosen = NodeSet(nodes, connected(edges_between(graph, nodes)), WHOLE, separated=False)
    score = np.array([float(node in nodes) for node in circuit.nodes])
    return replace(circuit, score=score, tables=dict(circuit.tables) | chosen.tables({}))


@cache
def judged(name: str, nodes: Nodes) -> SetEvaluation:
    exact = name.startswith("planted")
    fresh = make_contrast(found_in(name)[0], name, n=4 if exact else 16, seed=1)
    return evaluate_set(found_in(name)[0], of_nodes(name, nodes), fresh, n_random=4 if exact else 8)


def lacking(name: str) -> dict[str, Nodes]:
    """Twelve sets that lack something that the task needs."""
    true, inner = KNOWN[name], [node for node in writers(name) if node != INPUT]
    other = [node for node in inner if node not in true]
    depth = 1 + max(int(node[1]) for node in other if node[0] == "L")
    moved = tuple(f"L{(int(node[1]) + 1) % depth}{node[2:]}" for node in true)
    beside = tuple(next(n for n in other if n.startswith(node[:2])) for node in true)
    rng = np.random.default_rng(0)
    drawn = (tuple(inner[i] for i in rng.permutation(len(inner))[: len(true)]) for _ in range(99))
    random = [nodes for nodes in drawn if len({*nodes} & {*true}) < 2][:3]
    sets = {
        "nothing": (),
        "a bystander": (other[-1],),
        "the complement": tuple(other),
        "all but the first": true[1:],
        "only the first": true[:1],
        "the first and a bystander": (true[0], other[-1]),
        "other layers": moved,
        "the same layers": beside,
        **{f"random {i}": nodes for i, nodes in enumerate(random)},
    }
    return {what: (INPUT, *nodes) for what, nodes in sets.items()} | {"no input": true}


def superfluous(name: str) -> dict[str, Nodes]:
    """Sets that hold nodes without an effect: the truth with one more, and what has no truth."""
    true = (INPUT, *KNOWN[name])
    other = [node for node in writers(name) if node not in true]
    more = {f"and {node}": (*true, node) for node in other}
    return more | {"all": writers(name), "none of it": (INPUT, *other)}


@pytest.mark.parametrize("name", SOME)
def test_faithfulness_and_completeness(name) -> None:
    bogus = lacking(name)
    assert len(bogus) == 12
    truth = judged(name, (INPUT, *KNOWN[name]))
    assert truth.faithfulness[1] > 0.85
    assert truth.completeness[1] > 0.85
    assert truth.faithfulness[0] > np.median(truth.random) + 0.2
    for what, nodes in bogus.items():
        of_set = judged(name, nodes)
        assert of_set.faithfulness[0] < 0.8, what
        value, low, high = of_set.completeness
        assert low <= value <= high, what
        assert value < min(0.8, truth.completeness[1]), what


@pytest.mark.parametrize("name", SOME)
def test_faithfulness_of_the_first_heads(name) -> None:
    model = found_in(name)[0]
    fresh = make_contrast(model, name, n=8, seed=1)

    def kept(nodes: Nodes) -> tuple[float, float]:
        k = max(1, sum(node[0] == "L" for node in nodes))
        found = evaluate_circuit(model, of_nodes(name, nodes), fresh, k=k, n_random=8)
        return found.chosen_faithfulness, float(np.median(found.shaped_faithfulness))

    truth, random = kept(KNOWN[name])
    assert truth > max(0.85, random + 0.2)
    bogus = {what: nodes for what, nodes in lacking(name).items() if what != "no input"}
    assert max(kept(nodes)[0] for nodes in bogus.values()) < 0.8


def test_the_areas_of_mib_prefer_a_set_that_lacks_a_part() -> None:
    """That is why they are computed for comparisons of methods, and not printed of a circuit."""
    model = found_in("trained:names")[0]
    fresh = make_contrast(model, "trained:names", n=16, seed=1)

    def areas(nodes: Nodes) -> dict[str, float]:
        inside = set(connected(edges_between(ResidualGraph.of(model), (INPUT, *nodes))))
        edges = tuple(ResidualGraph.of(model).edges)
        score = np.array([float(edge in inside) for edge in edges])
        found = replace(found_in("trained:names")[1], level="edge", edges=edges, edge_score=score)
        sem = np.full(len(edges), np.nan)
        return evaluate_edges(model, replace(found, edge_sem=sem), fresh, n_random=1).as_mib()

    true = KNOWN["trained:names"]
    truth, bogus = areas(true), areas(true[1:])
    assert bogus["CMD"] < truth["CMD"]
    assert bogus["CPR"] > truth["CPR"]
    assert judged("trained:names", (INPUT, *true[1:])).faithfulness[0] < 0.8


@pytest.mark.parametrize("name", ["planted:induction", pytest.param("planted:backup", marks=SLOW)])
def test_minimality(name) -> None:
    """Heads of which one is enough are needed once the others are gone; bystanders never are."""
    truth = judged(name, (INPUT, *KNOWN[name]))
    assert bool(truth.wide()["needed"].all())
    bogus = superfluous(name)
    assert len(bogus) >= 10
    for what, nodes in bogus.items():
        rows = judged(name, nodes).wide()
        needed = set(rows["node"][rows["needed"]])
        assert needed == ({INPUT, *KNOWN[name]} if KNOWN[name][0] in nodes else set()), what


def test_heads_of_which_one_is_enough_are_named() -> None:
    of_set = judged("planted:backup", (INPUT, *KNOWN["planted:backup"]))
    assert of_set.completeness[0] == pytest.approx(1, abs=0.01)
    assert "needed only once the others of these are gone: L1H0 L2H0" in of_set.summary()
    last = of_set.wide().set_index("node")["last"]
    assert last.loc[["L1H0", "L2H0"]].to_numpy() == pytest.approx(1, abs=0.01)
    assert bool(last.drop(["L1H0", "L2H0"]).isna().all())
    # the set without the backup keeps the task, and loses all of it where the model loses nothing
    alone = judged("planted:backup", (INPUT, "L0H3", "L1H0"))
    assert alone.faithfulness[0] == pytest.approx(1, abs=0.01)
    assert alone.completeness[0] == pytest.approx(0, abs=0.01)
    assert alone.worst == (("L1H0",), ("L1H0",))
