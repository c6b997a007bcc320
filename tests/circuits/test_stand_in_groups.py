"""Groups of heads of which one is enough, planted by copying a head, and models without any."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sampled import sampled

import interp
from interp.circuits.find import find_circuit
from interp.circuits.groups import GroupSearch, HeadGroup
from interp.circuits.matters import LEAST, _corrected
from interp.circuits.patched import patch_first
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast
from interp.planted import build
from interp.report.printed.circuit import found_lines

HEADS, WIDTH = 6, 128


def copied(size: int, seed: int):
    """Build induction whose previous-token head has copies: the softmax after them saturates."""
    planted = build("induction", heads=HEADS, kv_heads=HEADS, seed=seed)
    [(layer, head)] = planted.roles["previous_token"]
    rng = np.random.default_rng(seed)
    others = rng.permutation([x for x in range(HEADS) if x != head])[: size - 1].tolist()
    attention = planted.model.model.layers[layer].self_attn
    source = slice(head * WIDTH, (head + 1) * WIDTH)
    with torch.no_grad():
        for other in others:
            rows = slice(other * WIDTH, (other + 1) * WIDTH)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
                projection.weight[rows] = projection.weight[source]
            attention.o_proj.weight[:, rows] = attention.o_proj.weight[:, source]
    model = interp.load(planted.model)
    heads = tuple(f"L{layer}H{x}" for x in sorted([head, *others]))
    return heads, model, make_contrast(model, "induction", n=12, seed=seed)


CASES = [(size, seed) for size in (4, 3, 2) for seed in range(7)][:20]
QUICK = [(3, 0)]


@pytest.mark.parametrize(
    ("size", "seed"),
    [*QUICK, *sampled((pytest.param(*x) for x in CASES if x not in QUICK), every=9)],
)
def test_a_planted_group_is_found(size, seed) -> None:
    heads, model, task = copied(size, seed)
    found = find_circuit(model, task)
    rows = found.tables["groups"]
    assert tuple(row["node"] for row in rows) == heads
    score = dict(zip(found.nodes, found.score, strict=True))
    for row in rows:
        assert score[row["node"]] == pytest.approx(0, abs=1e-3)
        assert row["share"] == pytest.approx(10 / size, abs=1e-2)
        assert row["joint"] == pytest.approx(10, abs=1e-2)
    every = {2: "both", 3: "all three", 4: "all four"}[size]
    text = f"any one of {', '.join(heads)} is enough; without {every} 10 logits are lost"
    assert {row["summary"] for row in rows} == {text}
    assert f"\n  {text}\n" in found_lines(found, 5)
    # bystanders rank below, whatever the order of names
    assert set(found.ranking[: size + 2]) >= set(heads)
    inside = set(found.chosen.nodes) & set(heads)
    assert len(inside) == 1
    matters = {row["node"]: row["without"] for row in found.tables["matters"] if row["node"]}
    assert {x for x in matters if x in heads} == set(heads)
    assert set(matters[heads[0]].split()) == set(heads[1:])
    [used] = inside
    hidden = {e: x for e, x in zip(found.edges, found.edge_score, strict=True) if used == e[0]}
    assert max(map(abs, hidden.values())) == pytest.approx(10, abs=0.1)  # with the others out


def test_a_group_is_stored_and_patched_again(tmp_path) -> None:
    heads, model, task = copied(3, 0)
    found = find_circuit(model, task)
    found.to_json(tmp_path / "c.json")
    assert Circuit.from_json(tmp_path / "c.json").ranking == found.ranking
    fresh = make_contrast(model, "induction", n=6, seed=99)
    again = patch_first(model, found, fresh, 5).wide().set_index("node")
    for head in heads:
        assert again.loc[head, "conditional"] == pytest.approx(10, abs=1e-2)


@pytest.mark.parametrize("seed", sampled(range(20), every=9))
def test_a_model_without_a_group_has_none(seed) -> None:
    _, model, task = copied(1, seed)
    found = find_circuit(model, task)
    assert found.tables["groups"] == []


def test_shares_are_shapley_values() -> None:
    heads, rng = ("L0H0", "L0H1", "L0H2"), np.random.default_rng(0)
    sets = [frozenset(x) for n in range(4) for x in combinations(heads, n)]
    group = HeadGroup(heads, {x: rng.normal(size=5) if x else np.zeros(5) for x in sets})
    shares = {x: group.share_of(x) for x in heads}
    np.testing.assert_allclose(sum(shares.values()), group.joint)
    orders = [("L0H0", "L0H1", "L0H2"), ("L0H0", "L0H2", "L0H1"), ("L0H1", "L0H0", "L0H2")]
    orders += [("L0H1", "L0H2", "L0H0"), ("L0H2", "L0H0", "L0H1"), ("L0H2", "L0H1", "L0H0")]
    by_order = [
        group.lost[frozenset(order[: order.index("L0H1") + 1])]
        - group.lost[frozenset(order[: order.index("L0H1")])]
        for order in orders
    ]
    np.testing.assert_allclose(shares["L0H1"], np.mean(by_order, axis=0))


def test_the_sentence_says_how_many_are_enough() -> None:
    heads = ("L0H0", "L0H1", "L0H2")
    sets = [frozenset(x) for n in range(4) for x in combinations(heads, n)]

    def told(by_size: tuple[float, float, float, float]) -> str:
        return HeadGroup(heads, {x: np.full(4, by_size[len(x)]) for x in sets}).summary("logits")

    assert told((0, 0, 0, 10)).startswith("any one of L0H0, L0H1, L0H2 is enough; without all")
    assert told((0, 0, 8, 10)).startswith("any two of L0H0")
    assert told((0, 2, 8, 10)) == (
        "L0H0, L0H1, L0H2 stand in for each other: without all three 10 logits are lost,"
        " alone 2, 2, 2"
    )


def fake_runs(n: int, rng) -> SimpleNamespace:
    task = SimpleNamespace(clusters=None, many_clusters=False, __len__=lambda: n)
    return SimpleNamespace(
        gap=10.0, held=np.arange(n), first=np.arange(n), second=np.arange(n), task=task
    )


def test_chance_gives_few_groups() -> None:
    """Joint effects that are sums but for noise, three candidates in each of 400 models."""
    rng, false, heads = np.random.default_rng(0), 0, ("L0H0", "L0H1")
    for _ in range(400):
        runs = fake_runs(12, rng)
        groups = []
        for _ in range(3):
            one, other, noise = rng.normal(2, 3, 12), rng.normal(2, 3, 12), rng.normal(0, 3, 12)
            lost = {frozenset(heads[:1]): one, frozenset(heads[1:]): other}
            lost[frozenset(heads)] = one + other + noise
            groups.append(HeadGroup(heads, lost))
        false += bool(GroupSearch(runs, {})._judged(groups, 3))
    assert false / 400 <= 0.05


def test_chance_lets_few_nodes_matter() -> None:
    """Noise on 60 nodes of 400 models: in at most 5 % of them one is said to matter."""
    rng, n = np.random.default_rng(1), 32

    class Pairs(list):
        clusters, many_clusters = None, False

    runs = SimpleNamespace(gap=1.0, task=Pairs(range(n)))
    false = sum(
        bool((_corrected(runs, list(rng.normal(0, 1, (60, n)))) < 0.05).any()) for _ in range(400)
    )
    assert 0 < false / 400 <= 0.075
    small = [np.full(n, LEAST / 2) + rng.normal(0, 1e-6, n), np.full(n, 2 * LEAST)]
    assert (_corrected(runs, small) < 0.05).tolist() == [False, True]
