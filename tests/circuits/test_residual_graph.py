"""The residual graph: who reads what, what nodes write, and forwards edge by edge."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import zoo
from circuits.slow_gpt2 import forward

import interp
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.edge_run import EdgeRun
from interp.circuits.node_outputs import node_outputs, paired_outputs
from interp.circuits.residual_graph import ResidualGraph
from interp.core.errors import OptionError, PromptError, UnknownName, UnreadableAttention

CLEAN = torch.tensor([[9, 33, 21, 40, 33, 21, 21, 17, 9, 33], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
CORRUPTED = torch.tensor([[5, 6, 7, 8, 1, 2, 3, 4, 21, 22], [9, 33, 20, 40, 33, 21, 21, 17, 9, 33]])
# sequential and side by side, grouped queries, rotary, code of their own, rows, scaled branches
FAMILIES = ("gpt2", "llama", "gpt_neox", "gpt_neo", "falcon", "opt", "mixtral", "granite", "qwen3")

NORMED = [pytest.param(name, marks=pytest.mark.slow) for name in ("gemma3", "olmo2")]


@cache
def model_of(name: str) -> interp.Model:
    family = zoo.FAMILIES[name]
    return interp.load(family.model(family.attentions[-1]), name=name)


@cache
def graph_of(name: str) -> ResidualGraph:
    return ResidualGraph.of(model_of(name))


@cache
def edges_of(name: str) -> EdgeForward:
    return EdgeForward(graph_of(name), CLEAN, CORRUPTED)


def close(a, b, atol=2e-5):
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-4)


def test_readers_and_writers_of_a_sequential_model():
    graph = graph_of("gpt2")
    assert graph.writers[:8] == ("embed", *(f"L0H{h}" for h in range(6)), "mlp0")
    assert [r.name for r in graph.readers[:3]] == ["L0H0.q", "L0H0.k", "L0H0.v"]
    assert graph.readers[-1].name == "logits"
    assert graph.readers[-1].n_before == len(graph.writers)
    reads = {r.name: r.n_before for r in graph.readers}
    assert reads["L0H5.v"] == 1
    assert reads["mlp0"] == 7
    assert reads["L1H0.q"] == 8
    assert len(graph.edges) == 18 * (1 + 8 + 15) + 7 + 14 + 21 + 22


def test_an_mlp_beside_attention_does_not_read_its_heads():
    graph = graph_of("gpt_neox")
    reads = {r.name: r.n_before for r in graph.readers}
    assert reads["mlp0"] == 1
    assert reads["mlp1"] == reads["L1H0.q"] == 8


@pytest.mark.parametrize("name", FAMILIES)
def test_what_nodes_write_adds_up_in_every_stream(name):
    graph = graph_of(name)
    a, b = paired_outputs(graph, CLEAN, CORRUPTED)
    close(a.logits, model_of(name).run(CLEAN), atol=0)
    for reader in graph.readers:
        difference = (a.out - b.out)[:, :, : reader.n_before].sum(2)
        close(a.read(reader) - b.read(reader), difference)


def test_node_outputs_are_those_of_the_slow_forward():
    with torch.no_grad():
        _, slow = forward(model_of("gpt2").module, CLEAN, lambda writer, reader: True)
    out = node_outputs(graph_of("gpt2"), CLEAN).out
    for i, writer in enumerate(graph_of("gpt2").writers):
        close(out[:, :, i], slow[writer])


@pytest.mark.parametrize("name", FAMILIES)
def test_all_edges_and_no_edge_give_the_two_runs(name):
    edges, model = edges_of(name), model_of(name)
    close(edges.run(edges.graph.full()), model.run(CLEAN))
    nothing = torch.zeros(len(edges.graph.readers), len(edges.graph.writers))
    close(edges.run(nothing), model.run(CORRUPTED))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_any_set_of_edges_equals_the_slow_forward(seed, share):
    graph, edges = graph_of("gpt2"), edges_of("gpt2")
    drawn = torch.rand(len(graph.readers), len(graph.writers), generator=torch.manual_seed(seed))
    mask = (drawn < share).float()
    wanted = {
        (writer, reader.name)
        for i, reader in enumerate(graph.readers)
        for j, writer in enumerate(graph.writers)
        if mask[i, j]
    }
    with torch.no_grad():
        _, other = forward(model_of("gpt2").module, CORRUPTED, lambda writer, reader: True)
        slow, _ = forward(
            model_of("gpt2").module, CLEAN, lambda writer, reader: (writer, reader) in wanted, other
        )
    got = edges.run(mask)
    close(got, slow)
    assert float((got - edges.base.logits).abs().max()) > 0.1
    several = edges.run(torch.stack([graph.full(), mask, 1 - mask]))
    close(several[1], got)
    close(several[0], edges.base.logits)


def test_denoising_exchanges_the_runs():
    graph = graph_of("gpt2")
    back = EdgeForward(graph, CLEAN, CORRUPTED, denoise=True)
    mask = graph.mask([("L0H2", "L1H1.k"), ("embed", "mlp0"), ("mlp1", "logits")])
    with torch.no_grad():
        _, other = forward(model_of("gpt2").module, CLEAN, lambda writer, reader: True)
        slow, _ = forward(
            model_of("gpt2").module,
            CORRUPTED,
            lambda writer, reader: (
                (writer, reader) in {("L0H2", "L1H1.k"), ("embed", "mlp0"), ("mlp1", "logits")}
            ),
            other,
        )
    close(back.run(mask), slow)


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "gpt_neo", "qwen3", "falcon", *NORMED])
@pytest.mark.parametrize("part", ["q", "k", "v"])
def test_one_path_equals_real_forwards_with_hooks(name, part):
    """Layer 1 reads its stream with one writer exchanged; then one head runs on what it read."""
    model, graph, edges = model_of(name), graph_of(name), edges_of(name)
    layer, head, writer = graph.layers[1], 4, graph.writer("L0H3")
    delta = graph.changes_alone(edges.other.out, edges.base.out)[:, :, writer]
    block = model.module.get_submodule(layer.block)

    def shifted(module, args, kwargs):
        if args:
            return (args[0] + delta, *args[1:]), kwargs
        return args, kwargs | {"hidden_states": kwargs["hidden_states"] + delta}

    names = ("q", "k", "v", "scores")
    clean = model.capture(CLEAN, names, layers=1)
    handle = block.register_forward_pre_hook(shifted, with_kwargs=True)
    try:
        moved = model.capture(CLEAN, names, layers=1)
    finally:
        handle.remove()
    kv = layer.site.kv_head(head)
    mine = {p: (moved if p == part else clean)[p, 1][:, head if p == "q" else kv] for p in "qkv"}
    seen = clean["scores", 1][:, head] > -1000
    raw = clean["q", 1][:, head] @ clean["k", 1][:, kv].transpose(1, 2)
    scale = (clean["scores", 1][:, head][seen] / raw[seen]).median()
    scores = (mine["q"] @ mine["k"].transpose(1, 2) * scale).masked_fill(~seen, -torch.inf)
    z = scores.softmax(-1) @ mine["v"]
    slow = model.run(CLEAN, edits=[interp.model.set_z(f"L1H{head}", z[:, None])])
    got = edges.run(graph.full() - graph.mask([("L0H3", f"L1H{head}.{part}")]))
    close(got, slow)
    assert float((got - edges.base.logits).abs().max()) > 1e-4


def test_freezing_the_norm_makes_the_reader_linear():
    graph, edges = graph_of("gpt2"), edges_of("gpt2")
    path = graph.full() - graph.mask([("L0H1", "logits")])
    half = graph.full() - 0.5 * graph.mask([("L0H1", "logits")])
    base = edges.base.logits
    whole, part = (edges.run(m, norm="freeze") - base for m in (path, half))
    close(part, whole / 2)
    exact = [edges.run(m) - base for m in (path, half)]
    assert float((exact[1] - exact[0] / 2).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["bert", "t5", "albert", "openai-gpt"])
def test_models_that_are_no_such_graph_are_refused_by_name(name):
    with pytest.raises(UnreadableAttention, match=r"post-norm|stacks|several times"):
        ResidualGraph.of(model_of(name))


def test_bad_input_by_name():
    graph, edges = graph_of("gpt2"), edges_of("gpt2")
    with pytest.raises(UnknownName, match="L9H0"):
        graph.mask([("L9H0", "logits")])
    with pytest.raises(UnknownName, match="reader"):
        graph.mask([("L0H0", "embed")])
    with pytest.raises(OptionError, match=r"reads before \w+ writes"):
        graph.mask([("L1H0", "L0H0.q")])
    with pytest.raises(OptionError, match="shape"):
        edges.run(torch.ones(3, 4))
    with pytest.raises(OptionError, match="NaN"):
        edges.run(graph.full() * float("nan"))
    with pytest.raises(OptionError, match="known: exact, freeze"):
        edges.run(graph.full(), norm="none")
    with pytest.raises(PromptError, match="equal lengths"):
        EdgeForward(graph, CLEAN, CORRUPTED[:, :-1])


def test_a_stream_that_others_write_to_is_refused():
    module = zoo.FAMILIES["gpt2"].model("eager")
    graph = ResidualGraph.of(interp.load(module, name="gpt2"))
    handle = module.transformer.h[1].register_forward_hook(lambda m, a, out: out + out.tanh())
    try:
        with pytest.raises(UnreadableAttention, match="something else writes"):
            paired_outputs(graph, CLEAN, CORRUPTED)
    finally:
        handle.remove()


def test_freezing_the_norm_makes_a_values_input_linear():
    """Values are linear in what they read, so what one head then writes halves with the change."""
    graph, edges = graph_of("gpt2"), edges_of("gpt2")
    last = graph.layers[-1].site.layer
    # only this head's direct way to the logits is left open, at a frozen scale as well
    base = value_read(edges, graph.full(), last)
    one = graph.mask([("embed", f"L{last}H1.v")])
    whole, part = (value_read(edges, graph.full() - x * one, last) - base for x in (1.0, 0.5))
    close(part, whole / 2)
    exact = [value_read(edges, graph.full() - x * one, last, "exact") - base for x in (1.0, 0.5)]
    assert float((exact[1] - exact[0] / 2).abs().max()) > 1e-4


def value_read(edges, mask, layer, norm="freeze"):
    """What all heads of a layer write together, in a forward under a mask."""
    model, seen = edges.model, []
    module = model.module.get_submodule(model.site(layer).projection)
    handle = module.register_forward_hook(lambda m, a, out: seen.append(out.clone()))
    try:
        edges.run(mask, norm=norm)
        if not seen:  # nothing is changed, so no block was run
            with torch.no_grad():
                model.run(edges.inputs)
    finally:
        handle.remove()
    return seen[-1]


def read_by_read(*args, in_place: bool, whole: bool) -> EdgeRun:
    """Make a run that replaces nothing where it is written: every reader has its own input."""
    return EdgeRun(*args)


@pytest.mark.parametrize("name", [*FAMILIES, *NORMED])
def test_parts_that_are_replaced_as_a_whole_need_not_run(name, monkeypatch) -> None:
    """Heads, MLP, or all of a layer, also beside further cut edges; the first run keeps them."""
    graph = graph_of(name)
    edges = EdgeForward(graph, CLEAN, CORRUPTED, read_at=[[3, 9], [9]])
    generator = torch.Generator().manual_seed(1)
    chance = torch.rand(graph.full().shape, generator=generator)
    bases = [graph.full() * (chance < share) for share in (1.0, 0.7, 0.2)]
    masks = []
    for layer in graph.layers:
        heads = graph.heads_of(layer)
        ends = [(heads.start, heads.stop)]
        if layer.has_mlp:
            ends += [(heads.stop, heads.stop + 1), (heads.start, heads.stop + 1)]
        ends += [(heads.start, heads.start + 1)]  # some heads of a layer must still run
        for first, end in ends:
            for base in bases:
                masks.append(base.clone())
                masks[-1][:, first:end] = 0
    fast = [edges.run(mask) for _ in range(2) for mask in masks]
    kept = {path for path, out in edges.outputs.items() if out is not None}
    assert {
        layer.site.module for layer in graph.layers if layer.site in edges.reuse.attention
    } <= kept

    monkeypatch.setattr("interp.circuits.edge_forward.EdgeRun", read_by_read)
    for one, two, mask in zip(fast[: len(masks)], fast[len(masks) :], masks, strict=True):
        slow = edges.run(mask)
        for prompt, positions in enumerate(([3, 9], [9])):
            close(one[prompt, positions], slow[prompt, positions])
            close(two[prompt, positions], slow[prompt, positions])


@pytest.mark.parametrize("name", [*FAMILIES, *NORMED])
def test_a_node_replaced_where_it_writes_equals_its_edges_patched_one_by_one(
    name, monkeypatch
) -> None:
    graph = graph_of(name)
    edges = EdgeForward(graph, CLEAN, CORRUPTED, read_at=[[3, 9], [9]], columns=[7, 2])
    generator = torch.Generator().manual_seed(0)
    drawn = graph.full() * (torch.rand(graph.full().shape, generator=generator) < 0.5)
    mixed, half = drawn.clone(), graph.full()
    mixed[:, ::3], half[:, ::2] = 0, 0
    masks = []
    for writer in range(len(graph.writers)):
        masks.append(graph.full())
        masks[-1][:, writer] = 0
    masks = torch.stack([*masks, half, drawn, mixed, graph.full() * 0])
    fast = torch.cat([edges.run(masks), edges.run(mixed)[None]])
    alone = edges.rows(masks)
    assert (alone is None) == (edges.reuse.unembedding is None)
    if alone is not None:  # the same numbers, in the order of prompts, positions and ids
        rows = torch.cat([fast[:-1, 0, [3, 9]], fast[:-1, 1, [9]]], 1)
        close(alone, rows[..., [7, 2]])

    monkeypatch.setattr("interp.circuits.edge_forward.EdgeRun", read_by_read)
    edges.wanted = None
    slow = torch.cat([edges.run(masks), edges.run(mixed)[None]])
    for prompt, positions in enumerate(([3, 9], [9])):
        close(fast[:, prompt, positions], slow[:, prompt, positions])
        rest = [at for at in range(10) if at not in positions]
        assert not fast[:, prompt, rest].any()  # positions that are not read cost nothing
        assert slow[:, prompt, rest].any()
