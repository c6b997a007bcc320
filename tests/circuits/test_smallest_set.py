"""The smallest set: as small as the exhaustive optimum, on pairs that are parted in three."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import interp
from interp.circuits.find import find_circuit
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.smallest import choose_nodes
from interp.circuits.subsets import Subsets
from interp.circuits.tasks import TASKS, make_contrast
from interp.core.ties import reaches

QUICK = ("compiled:hist", "compiled:sort", "trained:brackets", "planted:sink")
KNOWN = sorted(name for name in TASKS if TASKS[name].model and name not in QUICK)
LARGE = {"planted:backup", "planted:zoo", "planted:refusal", "planted:selective_induction"}
LARGE |= {"compiled:shuffle_dyck", "compiled:shuffle_dyck2", "trained:names", "trained:backup"}


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(x, marks=pytest.mark.slow) for x in KNOWN if x not in LARGE)],
)
def test_no_set_of_nodes_is_smaller(name) -> None:
    """All subsets of at most 14 nodes, one smaller at a time."""
    model = interp.load(TASKS[name].model or name)
    task = make_contrast(model, name, n=12)
    found = find_circuit(model, task, level="head", backups=False)
    runs = PatchedRuns(model, task, parts=task.parts())
    assert len(runs.graph.writers) <= 14
    chosen = choose_nodes(runs, found.ranking)
    search = Subsets(runs, runs.only, "every subset", (0.8, 1.2))
    assert chosen.minimal
    assert chosen.nodes == found.chosen.nodes
    assert (
        len(chosen.nodes) == len(runs.graph.writers) or search.enough([frozenset(chosen.nodes)])[0]
    )
    for size in range(1, len(chosen.nodes)):
        assert not any(search.enough([*map(frozenset, combinations(runs.graph.writers, size))]))


@pytest.mark.parametrize(
    "name", ["trained:names", pytest.param("compiled:sort_freq", marks=pytest.mark.slow)]
)
def test_no_node_and_no_edge_can_leave(name) -> None:
    model = interp.load(name)
    task = make_contrast(model, name, n=24)
    chosen = find_circuit(model, task).chosen
    assert chosen.minimal
    assert chosen.reached
    runs = PatchedRuns(model, task, parts=task.parts())
    without = [[e for e in chosen.edges if e != edge] for edge in chosen.edges]
    without += [
        [(a, b) for a, b in chosen.edges if name not in (a, b.partition(".")[0])]
        for name in chosen.nodes
    ]
    shares = runs.shares([runs.graph.mask(edges) for edges in [chosen.edges, *without]], "left")
    fits = (reaches(shares, 0.8) & reaches(1.2, shares)).all(1)
    assert fits.tolist() == [True, *[False] * len(without)]
    # the stated share is that of pairs which no pass of the search was made on
    stated = runs.share(runs.graph.mask(chosen.edges), "held out")
    assert chosen.share == pytest.approx(stated, abs=1e-4)
    assert chosen.pairs == len(runs.held) == 12


class Table:
    """Shares of subsets of numbers, as `PatchedRuns` gives them for masks."""

    choosing = 1.0

    def __init__(self, share) -> None:
        self.share, self.forwards = share, 0

    def shares(self, masks, stage):
        self.forwards += len(masks)
        return np.array([[self.share(mask)] * 2 for mask in masks])


def test_the_search_finds_the_optimum_of_sums_and_of_conditions() -> None:
    """Sums of parts, some of them negative, and tasks that need all of some items."""
    rng = np.random.default_rng(0)
    for trial in range(40):
        parts = rng.dirichlet(np.ones(9)) * np.where(rng.random(9) < 0.2, -0.3, 1.0)
        parts /= parts.sum()
        needed = set(rng.choice(9, 2, replace=False).tolist()) if trial % 2 else set()

        def share(items, parts=parts, needed=needed) -> float:
            return float(parts[sorted(items)].sum()) if needed <= set(items) else 0.0

        table = Table(share)
        search = Subsets(table, lambda items: items, "", (0.8, 1.2))
        order = sorted(range(9), key=lambda i: -abs(parts[i]))
        kept = search.smallest(order)
        sizes = [
            k for k in range(1, 10) for x in combinations(range(9), k) if 0.8 <= share(x) <= 1.2
        ]
        assert len(kept) == min(sizes), (trial, kept, parts)
        assert table.forwards < 300


@pytest.mark.parametrize(
    ("parts", "smallest"),
    [
        ((0.35, -0.3, 0.9), {2}),  # neither of the first two can leave alone
        ((0.45, 0.45, 0.85), {2}),  # the first two are enough, and so is the last alone
        ((0.4, 0.3, 0.2, 0.55, 0.05), {0, 3}),
    ],
)
def test_two_leave_together_and_one_takes_the_place_of_two(parts, smallest) -> None:
    table = Table(lambda items: sum(parts[i] for i in items))
    search = Subsets(table, lambda items: items, "", (0.8, 1.2))
    assert set(search.smallest(range(len(parts)))) == smallest


def test_a_search_without_passes_keeps_what_it_has() -> None:
    table = Table(lambda items: len(items) / 10)
    search = Subsets(table, lambda items: items, "", (0.8, 1.2), most=3)
    kept = search.smallest(range(10))
    assert table.forwards <= 3
    assert not search.complete
    assert len(kept) >= 8


def test_pairs_are_parted_in_three() -> None:
    model = interp.load("trained:names")
    for n, sizes in ((2, (2, 2, 2)), (6, (3, 3, 3)), (64, (16, 16, 32))):
        first, second, held = make_contrast(model, "trained:names", n=n).parts()
        assert (len(first), len(second), len(held)) == sizes
        if n > 3:
            assert not {*first, *second} & {*held}
        assert ({*first} == {*second}) == (n < 16)


def test_parts_have_every_template_and_many_clusters_are_not_divided() -> None:
    model = interp.load("trained:names")
    task = make_contrast(model, "trained:names", n=48)
    few = [f"template {i % 4}" for i in range(48)]
    many = [f"list {i % 12}" for i in range(48)]
    for labels, shared in ((few, 4), (many, 0)):
        prompts = type(task.clean)(task.clean.ids, clusters=tuple(labels))
        parted = type(task)(_with(task.task, prompts)).parts()
        first, second, held = ({labels[i] for i in part} for part in parted)
        assert len((first | second) & held) == shared
        assert {int(i) for part in parted for i in part} == set(range(48))
        assert min(len(first), len(second), len(held)) >= 3


def _with(task, prompts):
    from dataclasses import replace

    return replace(task, prompts=prompts)
