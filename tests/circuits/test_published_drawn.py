"""Published circuits as graphs: groups written out, drawn, exported, and put on the page."""

from __future__ import annotations

import re
from collections import Counter

import networkx as nx
import pytest

from interp.circuits.exports import DRAWN
from interp.circuits.nodes import layer_of, node_of
from interp.circuits.published import published, published_names
from interp.circuits.result import Circuit
from interp.core.errors import UnknownName


@pytest.mark.parametrize("name", published_names())
def test_every_one_is_drawn_and_exported(name, tmp_path) -> None:
    told = published(name)
    found = told.circuit()
    assert set(found.head_names) == set(told.heads)
    assert len(found.edges) == len(set(found.edges)) <= DRAWN
    for a, b in found.edges:
        assert a in found.nodes
        assert b == "logits" or node_of(b) in found.nodes
        assert layer_of(a, told.n_layers) < layer_of(node_of(b), told.n_layers)
    drawn = told.to_svg(tmp_path / "c.svg")
    assert all(f">{node}</text>" in drawn for node in found.nodes)
    assert len(re.findall("<path ", drawn)) == len(found.edges)
    assert told.plot().data
    assert found.to_networkx().number_of_edges() == len(found.edges)
    found.to_toml(tmp_path / "c.toml")
    assert Circuit.from_toml(tmp_path / "c.toml").to_dict() == found.to_dict()
    found.to_graphml(tmp_path / "c.graphml")
    assert nx.read_graphml(tmp_path / "c.graphml").number_of_edges() == len(found.edges)


def test_groups_are_all_pairs_of_heads_and_inputs() -> None:
    """IOI, counted by hand from the heads of each role and the inputs that are named."""
    found = published("ioi_gpt2_small").circuit()
    ends = Counter(
        "embed" if a == "embed" else "logits" if b == "logits" else "heads" for a, b in found.edges
    )
    assert ends["embed"] == 2 * 3 + 3 * 3 + 4 + (2 + 3 + 8) * 2
    assert ends["logits"] == 2 + 3 + 8
    assert ends["heads"] == 2 * 4 * 2 + 4 * 4 * 2 + 3 * 4 * 2 + 4 * (2 + 3 + 8)
    assert ("L2H2", "L5H5.k") in found.edges
    assert ("L2H2", "L5H5.q") not in found.edges
    score = dict(zip(found.nodes, found.score, strict=True))
    assert {n for n, x in score.items() if x < 0} == {"L10H7", "L11H10"}
    against = {e for e, x in zip(found.edges, found.edge_score, strict=True) if x < 0}
    assert against == {("L10H7", "logits"), ("L11H10", "logits")}


def test_mlps_and_single_heads_are_ends_too() -> None:
    found = published("greater_than_gpt2_small").circuit()
    assert [n for n in found.nodes if n[0] == "m"] == [
        f"mlp{i}" for i in (0, 1, 2, 3, 8, 9, 10, 11)
    ]
    for edge in (
        ("embed", "mlp0"),
        ("L0H1", "mlp2"),
        ("L0H3", "L9H1"),
        ("mlp3", "L9H1"),
        ("mlp0", "mlp3"),
        ("mlp8", "mlp11"),
        ("mlp8", "L9H1.q"),
        ("L9H1", "mlp10"),
        ("mlp11", "logits"),
    ):
        assert edge in found.edges, edge
    for edge in (("mlp3", "mlp8"), ("mlp8", "L8H11"), ("L9H1", "mlp8")):
        assert edge not in found.edges, edge


def test_listed_edges_and_variants() -> None:
    told = published("docstring_attn_only_4l")
    assert set(told.circuit().edges) == set(told.edges)
    ioi = published("ioi_gpt2_small")
    other = ioi.circuit("oneill_bui")
    assert set(ioi.circuit().head_names) - set(other.head_names) == {"L9H0"}
    assert "L11H3" in other.head_names
    assert not any("L9H0" in (a, node_of(b)) for a, b in other.edges)
    with pytest.raises(UnknownName, match="variant"):
        ioi.circuit("nobody")


def test_the_page_shows_it_beside(run, tmp_path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'model = "planted:induction"\nn_layers = 2\nn_heads = 4\ntask = "induction"\n'
        'granularity = "head"\nsource = "it was <built> so"\n'
        "[roles]\nprevious_token = ['L0H3']\ninduction = ['L1H0']\n"
        "[[groups]]\nfrom = 'previous_token'\nto = 'induction'\ninputs = 'k'\n"
    )
    result = run(
        "circuit",
        "planted:induction",
        "--task",
        "induction",
        "-n",
        4,
        "--random",
        2,
        "--method",
        "exact-patching",
        "--against",
        own,
        "-o",
        tmp_path,
    )
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "planted-induction" / "circuit.html").read_text()
    assert "Published: own" in page
    assert published(str(own)).to_svg() in page
    assert "L0H3 to L1H0.k: 1 marks" in page
    assert "it was &lt;built&gt; so" in page
