"""Published circuits: every file is whole, and models and circuits that do not fit are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from beside import FOLDER, needs
from circuits.test_circuit_result import made

import interp
from interp.circuits.published import published, published_names, read_published
from interp.circuits.published_comparison import published_figures
from interp.core.errors import OptionError, StoreError, UnknownName

FACTS = FOLDER / "facts" / "circuits_ground_truth.json"


@pytest.mark.parametrize("name", published_names())
def test_every_file_is_a_circuit(name) -> None:
    found = published(name)
    assert found.heads
    assert len(found.source) > 10
    assert found.granularity in ("head", "edge")
    known = {*found.roles, "INPUT", "OUTPUT"}
    assert set(found.positions) <= known | {f"L{a}H{b}" for a in range(12) for b in range(12)}
    for group in found.groups:
        for end in (group["from"], group["to"]):
            parts = {x.strip().partition(".")[0] for x in end.split(",")}
            assert parts <= known | set(found.heads) or "mlp" in end, end
    nodes = {"embed", "logits", *found.heads}
    for a, b in found.edges:
        assert a in nodes
        assert b.partition(".")[0] in nodes
        assert b.partition(".")[2] in ("", "q", "k", "v")
    for claim in found.claims:
        assert isinstance(claim["value"], (int, float))


@needs(FACTS)
def test_the_files_say_what_the_facts_say() -> None:
    facts = json.loads(FACTS.read_text())
    ioi, told = published("ioi_gpt2_small"), facts["ioi_gpt2_small"]
    assert len(ioi.heads) == told["n_heads_in_circuit"] == 26
    for role, heads in ioi.roles.items():
        assert list(heads) == [f"L{a}H{b}" for a, b in told[role]]
    assert len(ioi.groups) == len(told["class_edges_qkv"])
    doc = published("docstring_attn_only_4l")
    assert len(doc.edges) == len(facts["docstring_attn_only_4l"]["edges"])
    assert ("L0H5", "L1H4.v") in doc.edges
    more = published("greater_than_gpt2_small")
    want = facts["greater_than_gpt2_small"]["path_patching_variant"]["heads"]
    assert list(more.variants["path_patching"]) == [f"L{a}H{b}" for a, b in want]


def test_variants_change_the_list() -> None:
    ioi = published("ioi_gpt2_small")
    other = ioi.variants["oneill_bui"]
    assert set(ioi.heads) - set(other) == {"L9H0"}
    assert set(other) - set(ioi.heads) == {"L11H3"}
    assert published("successor_gpt2_small").uncertain
    assert not ioi.uncertain


def circuit(score):
    names_ = tuple(f"L{layer}H{h}" for layer in range(12) for h in range(12))
    return made(
        nodes=names_,
        score=score(names_),
        sem=np.zeros(144),
        edges=(),
        edge_score=np.zeros(0),
        roles={},
    )


def test_a_circuit_is_compared() -> None:
    ioi = published("ioi_gpt2_small")
    best = circuit(lambda n: np.array([-1.0 if h in ioi.heads else 0.1 for h in n]))
    assert published_figures(ioi.compared(best)) | {"low": 1, "high": 1} == {
        "auroc": 1.0,
        "low": 1,
        "high": 1,
        "found": 26,
        "of": 26,
    }
    assert ioi.compared(best, "oneill_bui").found == 25
    rng = np.random.default_rng(0)
    null = [ioi.compared(circuit(lambda n: rng.random(len(n)))).score[0] for _ in range(60)]
    assert np.mean(null) == pytest.approx(0.5, abs=0.03)
    with pytest.raises(UnknownName, match="did you mean oneill_bui"):
        ioi.compared(best, "oneil")
    with pytest.raises(OptionError, match="none of the heads"):
        published("successor_gpt2_small").compared(made(edges=(), edge_score=np.zeros(0)))


def test_a_circuit_of_another_model_is_refused() -> None:
    model = interp.load("planted:bystander")
    with pytest.raises(
        OptionError, match=r"gpt2 \(12 layers of 12 heads\); planted:bystander has 2"
    ):
        published("ioi_gpt2_small").require(model)


def test_files_that_are_no_circuits(tmp_path) -> None:
    path = tmp_path / "c.toml"
    base = (
        'model = "m"\nn_layers = 2\nn_heads = 2\ntask = "t"\ngranularity = "head"\nsource = "s"\n'
    )
    for text, told in (
        ("model = ", "cannot be read"),
        ('model = "m"\n', "lacks n_layers"),
        (base + "extra = 1\n[roles]\na = ['L0H0']\n", "has the field 'extra'"),
        (base + "[roles]\na = ['L2H0']\n", "beyond 2 layers"),
        (base + "[roles]\na = ['L0H0', '0.0']\n", "is listed twice"),
        (base + "[roles]\na = ['L0H0']\n[variants.x]\nheads = ['L0H1']\n", "name its source"),
    ):
        path.write_text(text)
        with pytest.raises(StoreError, match=told):
            read_published(path)
    path.write_text(base + "[roles]\na = ['x']\n")
    with pytest.raises(OptionError, match="cannot read 'x' as a head"):
        published(str(path))
    with pytest.raises(UnknownName, match="ioi_gpt2_small"):
        published("ioi_gpt2")
