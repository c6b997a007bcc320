"""Head loadings and attribution graphs: exact sums, written-out edges, planted paths, files."""

from __future__ import annotations

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import networkx as nx
import numpy as np
import pytest
import torch
from zoo import FAMILIES

import interp
from interp import planted
from interp.circuits import attribution_graph, head_loadings
from interp.circuits.why.attribution_graph import influence_of, least_set, row_shares
from interp.circuits.why.graph_edges import direct_edges
from interp.circuits.why.graph_result import AttributionGraph
from interp.circuits.why.loadings import loadings_by
from interp.circuits.why.tracer_json import cantor
from interp.core.errors import OptionError, PromptError, UnknownName, UnreadableAttention
from interp.core.prompts import repeats
from interp.lens import direct_logit_attribution
from interp.model.random_weights import random_init

IDS = [5, 9, 11, 30, 4, 9]


def of_family(name: str) -> interp.Model:
    return interp.load(FAMILIES[name].model(FAMILIES[name].attentions[0]))


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_loadings_sum_to_the_direct_effect_of_the_head(name: str) -> None:
    model = of_family(name)
    found = head_loadings(model, "L1H1,L2H4", [IDS], target=7, contrast=12)
    lens = direct_logit_attribution(model, IDS, 7, contrast=12).parts
    for head in ("L1H1", "L2H4"):
        rows = [f"L{row['layer']}H{row['head']}" == head for row in found]
        assert found.per_prompt[rows].sum() == pytest.approx(lens[head], rel=1e-3, abs=1e-6)
    for what in ("writer", "source"):
        assert loadings_by(found, what).per_prompt.sum() == pytest.approx(found.per_prompt.sum())
    with pytest.raises(UnknownName):
        loadings_by(found, "token")
    with pytest.raises(OptionError, match="one length"):
        head_loadings(model, "L1H1", [IDS, IDS[:3]])


@torch.no_grad()
def test_an_edge_between_heads_is_that_of_gpt2_written_out() -> None:
    model = of_family("gpt2")
    edges = direct_edges(model, IDS, mass=0.95, most=3)
    place = {x.name: i for i, x in enumerate(edges.nodes)}
    first, block = (model.module.transformer.h[i] for i in (0, 1))
    d, width = block.attn.head_dim, block.attn.embed_dim
    cache = model.capture([IDS], ("z", "pattern", "resid_pre"))
    source, head, query, key = 3, 2, 5, 1
    part = (
        cache["z", 0][0, source, key].double()
        @ first.attn.c_proj.weight[source * d : (source + 1) * d].double()
    )
    x = cache["resid_pre", 1][0, key].double()
    scale = ((x - x.mean()).square().mean() + 1e-5).rsqrt()
    normed = (part - part.mean()) * scale * block.ln_1.weight.double()
    at = 2 * width + head * d
    value = normed @ block.attn.c_attn.weight[:, at : at + d].double()
    W_O = block.attn.c_proj.weight[head * d : (head + 1) * d].double()
    out = cache["z", 1][0, head, query].double() @ W_O
    weight = cache["pattern", 1][0, head, query, key].double()
    expected = float(weight * (value @ W_O) @ out / out.norm())
    found = float(edges.weights[place[f"L1H{head}@{query}"], place[f"L0H{source}@{key}"]])
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert edges.nodes[place[f"L1H{head}@{query}"]].activation == pytest.approx(float(out.norm()))


@pytest.mark.parametrize("name", ["gpt2", "llama", "gptj", "bloom", "gemma3", "olmo2"])
def test_edges_and_biases_sum_to_every_activation(name: str) -> None:
    model = of_family(name)
    edges = direct_edges(model, IDS, mass=0.95, most=3)
    logits = model.run([IDS])[0, -1].detach().double()
    for i, x in enumerate(edges.nodes):
        given = float(edges.weights[i].double().sum()) + x.bias
        if x.kind in ("head", "mlp", "logit"):
            assert given == pytest.approx(x.activation, rel=1e-3, abs=1e-4), x.name
        else:
            assert given == 0
        if x.kind == "logit":
            assert x.activation == pytest.approx(float(logits[x.number] - logits.mean()), abs=1e-4)
    upper = edges.weights[: len(IDS)]
    assert not upper.any()  # nothing enters a token


@torch.no_grad()
def test_an_mlp_is_its_gradient_with_the_norm_held() -> None:
    model = of_family("gpt2")
    edges = direct_edges(model, IDS, mass=0.95, most=1)
    place = {x.name: i for i, x in enumerate(edges.nodes)}
    block, at = model.module.transformer.h[0], 4
    cache = model.capture([IDS], ("resid_mid", "z", "mlp_out"))
    x = cache["resid_mid", 0][0, at].double()
    scale = ((x - x.mean()).square().mean() + 1e-5).rsqrt()
    mlp = block.mlp.double()
    try:
        part = cache["z", 0][0, 2, at].double() @ block.attn.c_proj.weight[16:24].double()
        gain, bias = block.ln_2.weight.double(), block.ln_2.bias.double()

        def run(extra: torch.Tensor) -> torch.Tensor:
            y = x + extra
            return mlp(((y - y.mean()) * scale * gain + bias)[None])[0]

        step = 1e-4
        change = (run(step * part) - run(-step * part)) / (2 * step)
        out = run(torch.zeros_like(x))
    finally:
        block.mlp.float()
    expected = float(change @ out / out.norm())
    found = float(edges.weights[place[f"mlp0@{at}"], place[f"L0H2@{at}"]])
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_the_ratio_of_activations_leaves_only_biases_out() -> None:
    model = of_family("llama")
    assert attribution_graph(model, IDS, mlp="identity").mlp_error < 1e-4
    assert attribution_graph(model, IDS).mlp_error > 0.5  # both sides of the product count
    with pytest.raises(UnknownName, match="unknown value of mlp 'none'; known: gradient, identity"):
        attribution_graph(model, IDS, mlp="none")  # type: ignore[arg-type]


def test_the_planted_path_is_found_and_the_bystander_is_not() -> None:
    made = planted.bystander()
    model = interp.load(made.model, name=made.name)
    ids = list(repeats(model, n=1, max_length=8).ids[0])
    found = attribution_graph(model, ids, mass=0.5)
    last = len(ids) - 1
    [copy], [silent] = made.roles["induction"], made.roles["bystander"]
    name = f"L{copy[0]}H{copy[1]}@{last}"
    token = ids[:last].index(ids[last]) + 1  # what followed the token before
    logit = f"logit {ids[token]}"
    edges = set(zip(found.sources, found.targets, strict=True))
    assert (f"embed@{token}", name) in edges
    assert (name, logit) in edges
    assert not any(x.startswith(f"L{silent[0]}H{silent[1]}@") for x in found.sources)
    assert found.top(1).sources[0] in (name, f"embed@{token}")


def test_random_weights_keep_more_of_the_graph() -> None:
    model = interp.load("bundled:induction")
    ids = list(repeats(model, n=1, max_length=8).ids[0])
    trained, other = attribution_graph(model, ids), attribution_graph(random_init(model, 0), ids)
    assert len(other) / other.edges_before > 3 * len(trained) / trained.edges_before


def test_features_are_nodes_whose_edges_sum_to_their_activation() -> None:
    model = of_family("llama")
    weight = torch.randn(12, 48, generator=torch.Generator().manual_seed(1)) / 7
    made = SimpleNamespace(
        W_dec=weight,
        b_dec=torch.zeros(48),
        layer=1,
        site="resid_pre",
        encode=lambda x: torch.relu(x @ weight.T),
    )
    edges = direct_edges(model, IDS, mass=0.9, most=2, dictionaries=[made], features=12)
    active = [i for i, x in enumerate(edges.nodes) if x.kind == "feature" and x.activation > 0]
    assert len(active) > 5
    stream = model.capture([IDS], ("resid_pre",))["resid_pre", 1][0]
    for i in active:
        x = edges.nodes[i]
        true = float(torch.relu(stream[x.position] @ weight[x.number]))
        assert x.activation == pytest.approx(true, rel=1e-4)
        assert float(edges.weights[i].sum()) == pytest.approx(true, rel=1e-3)  # no encoder bias
    heads = [i for i, x in enumerate(edges.nodes) if x.kind == "head" and x.layer == 1]
    early = [i for i, x in enumerate(edges.nodes) if x.layer < 1 and x.kind != "logit"]
    assert not edges.weights[heads][:, early].any()
    assert edges.weights[heads][:, active].any()


def test_influence_is_the_sum_over_all_paths() -> None:
    weights = torch.tensor([[0, 0, 0, 0], [2.0, 0, 0, 0], [1.0, -3.0, 0, 0], [0, 1.0, 1.0, 0]])
    found = influence_of(row_shares(weights), torch.tensor([0, 0, 0, 0.5]))
    # node 2: 1/2; node 1: direct 1/2, through node 2 1/2 * 3/4; node 0: 1 of node 1, 1/4 of node 2
    expected = [0.5 * (0.5 + 0.5 * 0.75 + 0.5 * 0.25), 0.5 * (0.5 + 0.375), 0.25, 0.0]
    assert torch.allclose(found, torch.tensor(expected))
    kept = least_set(torch.tensor([5.0, 1.0, 3.0, 1.0]), 0.75)
    assert kept.tolist() == [True, False, True, False]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_document_has_the_schema_of_the_front_end(name: str, tmp_path) -> None:
    found = attribution_graph(of_family(name), IDS, node_share=0.95)
    document = json.loads(found.to_circuit_tracer(tmp_path / "graph.json"))
    assert document == json.loads((tmp_path / "graph.json").read_text())
    assert set(document) == {"metadata", "qParams", "nodes", "links"}
    assert {
        "slug",
        "scan",
        "transcoder_list",
        "prompt_tokens",
        "prompt",
        "node_threshold",
        "schema_version",
    } == set(document["metadata"])
    types = {
        "node_id": str,
        "feature": int,
        "layer": str,
        "ctx_idx": int,
        "feature_type": str,
        "token_prob": float,
        "is_target_logit": bool,
        "run_idx": int,
        "reverse_ctx_idx": int,
        "jsNodeId": str,
        "clerp": str,
        "influence": float,
        "activation": float,
    }
    ids = [x["node_id"] for x in document["nodes"]]
    assert len(ids) == len(set(ids)) == len(found.nodes)
    for node in document["nodes"]:
        assert {k: type(v) for k, v in node.items()} == types
        if node["feature_type"] == "cross layer transcoder":
            layer, number, position = map(int, node["node_id"].split("_"))
            assert (str(layer), position) == (node["layer"], node["ctx_idx"])
            assert number >= found.n_layers  # error nodes are "0_{layer}_{position}"
            assert node["feature"] == cantor(layer, number)
    kinds = {x["feature_type"] for x in document["nodes"]}
    assert {"embedding", "cross layer transcoder", "logit"} <= kinds
    assert ("mlp reconstruction error" in kinds) == any(x.kind == "error" for x in found.nodes)
    ends = {x[k] for x in document["links"] for k in ("source", "target")}
    assert ends <= set(ids)
    assert sum(x["is_target_logit"] for x in document["nodes"]) == 1
    assert all(set(x[1:]) <= set(ids) for x in document["qParams"]["supernodes"])


def test_files_and_pictures(tmp_path) -> None:
    found = attribution_graph(of_family("gpt2"), IDS)
    for name in ("graph.graphml", "graph.svg", "graph.json"):
        found.save(tmp_path / name)
    again = nx.read_graphml(tmp_path / "graph.graphml")
    assert again.number_of_edges() == len(found)
    assert again.number_of_nodes() == len(found.nodes)
    svg = ElementTree.parse(tmp_path / "graph.svg").getroot()
    assert sum(x.tag.endswith("line") for x in svg.iter()) == min(len(found), 300)
    assert AttributionGraph.load(tmp_path / "graph.json").equals(found)
    assert "too large to draw whole" in str(found.plot(k=5).layout.title.text)
    for by in ("head", "layer", "token"):
        frame = found.grouped(by)
        assert frame["score"].sum() == pytest.approx(float(np.sum(found.weights)))
    with pytest.raises(UnknownName):
        found.groups("word")


def test_requests_that_cannot_be_met() -> None:
    model = of_family("gpt2")
    with pytest.raises(PromptError, match="one prompt"):
        attribution_graph(model, [IDS, IDS])
    with pytest.raises(OptionError, match="not a share"):
        attribution_graph(model, IDS, node_share=1.5)
    with pytest.raises(UnreadableAttention):
        attribution_graph(of_family("bert"), IDS)
    with pytest.raises(OptionError, match="at most"):
        attribution_graph(interp.load("planted:induction"), list(range(4, 60)) * 18)
