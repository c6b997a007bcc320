"""Programs compiled by Tracr: an independent source of what the circuit is."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.causal.task import Task
from interp.circuits.contrast import ContrastTask
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.find import find_circuit
from interp.circuits.linear_scores import LinearScores
from interp.circuits.methods import acdc
from interp.circuits.methods._attribution import (
    RunPair,
    edges_along_activations,
    edges_along_inputs,
    edges_by_gradient,
)
from interp.circuits.methods._exact import path_effects
from interp.circuits.methods._gradients import Passes
from interp.circuits.methods._seeds import seeds
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.planted.compiled import Program
from interp.planted.programs import PROGRAMS
from interp.planted.programs import program as stored_program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:jax"),
]

NAMES = ("frac_prevs", "sort", "hist", "reverse")
SAME_LENGTH = ("frac_prevs", "sort", "hist")  # reverse computes lengths, which pairs share
TWO_LENGTHS = "reverse of two lengths"  # padding fills the shorter list of a pair
COMPLETE = (*SAME_LENGTH, TWO_LENGTHS)  # pairs that differ in all that the program reads


def program_of(name: str) -> Program:
    return stored_program("reverse" if name == TWO_LENGTHS else name)


@cache
def setting(name: str):
    """The graph, 24 pairs of equal length, and the share of their difference in the output."""
    program = program_of(name)
    words, longest = PROGRAMS[program.name].words, PROGRAMS[program.name].longest
    model = interp.load(program.module, name=name)
    draw = random.Random(0)
    lists = [[draw.choice(words) for _ in range(longest)] for _ in range(96)]
    end = longest + 1
    if name == TWO_LENGTHS:
        lists[48:] = [[*x[:-2], "compiler_pad", "compiler_pad"] for x in lists[48:]]
        end -= 2  # programs state nothing about the output at padding
    ids = torch.tensor([program.ids(x) for x in lists])
    with torch.no_grad():
        a, b = model.run(ids[:48]), model.run(ids[48:])
    keep = ((a - b)[:, 1:end].abs().amax((1, 2)) > 0.1).nonzero().flatten()[:24]
    towards = (a - b)[keep]
    towards[:, 0] = 0
    towards[:, end:] = 0
    towards = towards / towards.square().sum((1, 2), keepdim=True)

    def value(logits: torch.Tensor) -> torch.Tensor:
        return (logits.reshape(-1, *towards.shape) * towards).sum((2, 3)).flatten()

    return ResidualGraph.of(model), ids[:48][keep], ids[48:][keep], value


@cache
def pairs_of(name: str) -> ContrastTask:
    """The pairs of a program as a task: how far the output lies from corrupted (0) to clean (1)."""
    graph, clean, corrupted, value = setting(name)
    sides = (Prompts(tuple(map(tuple, ids.tolist()))) for ids in (clean, corrupted))
    prompts, other = sides
    positions = (tuple(range(clean.shape[1])),) * len(clean)
    with torch.no_grad():
        zero = value(graph.model.run(corrupted))
    shape = graph.model.run(clean[:1]).shape[1:]

    def read(logits: torch.Tensor, prompt: int) -> torch.Tensor:
        alone = logits.new_zeros(len(clean), *shape)
        alone[prompt] = logits
        return value(alone)[prompt] - zero[prompt]

    return ContrastTask(
        Task(name, prompts, positions, "share", True, read_prompt=read, corrupted=other)
    )


def auroc(graph: ResidualGraph, edges: Any, scores: torch.Tensor) -> float:
    """Of all edges that exist, by the mean size of their scores; ties count half."""
    exists = graph.full() == 1
    size = scores.abs().mean(0)[exists]
    size = torch.where(size < 1e-6, 0.0, size)
    true = graph.mask(edges)[exists] == 1
    yes, no = size[true][:, None], size[~true][None]
    return float(((yes > no).double() + 0.5 * (yes == no).double()).mean())


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_torch_model_is_the_program(name):
    pytest.importorskip("tracr", reason="tracr-pypi is not installed")
    from training.compile_programs import compile_program

    made, program = compile_program(name)
    stored = stored_program(name).module.state_dict()
    for key, value in program.module.state_dict().items():
        torch.testing.assert_close(stored[key], value, atol=0, rtol=0)
    words, longest = PROGRAMS[name].words, PROGRAMS[name].longest
    draw = random.Random(1)
    coded = getattr(made.output_encoder, "encoding_map", None)
    for _ in range(5):
        given = [draw.choice(words) for _ in range(longest)]
        want = made.apply(["BOS", *given]).decoded[1:]
        with torch.no_grad():
            out = program.module(torch.tensor([program.ids(given)])).logits[0, 1:]
        if coded is None:
            assert out[:, 0].tolist() == pytest.approx(want, abs=1e-4)
        else:
            assert [{i: w for w, i in coded.items()}[i] for i in out.argmax(-1).tolist()] == want


@pytest.mark.parametrize("name", [*NAMES, TWO_LENGTHS])
def test_the_edges_of_the_weights_are_enough(name):
    graph, clean, corrupted, value = setting(name)
    program = program_of(name)
    edges = EdgeForward(graph, clean, corrupted)
    with torch.no_grad():
        whole = value(edges.base.logits) - value(edges.other.logits)
        mine = value(edges.run(graph.mask(program.edges))) - value(edges.other.logits)
        nothing = value(edges.run(graph.full() - graph.mask(program.edges)))
    torch.testing.assert_close(mine, whole, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(nothing, value(edges.other.logits), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", COMPLETE)
def test_exact_paths_find_the_edges_of_the_weights(name):
    graph, clean, corrupted, value = setting(name)
    program = program_of(name)
    found = path_effects(EdgeForward(graph, clean, corrupted), value, graph.edges)
    exact = torch.zeros(len(clean), len(graph.readers), len(graph.writers))
    for i, (writer, reader) in enumerate(graph.edges):
        exact[:, graph.reader_index[reader], graph.index[writer]] = found[i].float()
    assert auroc(graph, program.edges, exact) == 1
    draw = torch.rand(exact.shape, generator=torch.Generator().manual_seed(0))
    assert auroc(graph, program.edges, draw) < 1


@pytest.mark.parametrize("name", COMPLETE)
def test_the_default_finds_all_nodes_and_edges_of_the_weights(name):
    """Gradients vanish at these softmaxes, so whatever they alone decided would be missing."""
    program, task = program_of(name), pairs_of(name)
    found = find_circuit(setting(name)[0].model, task, faithful=0.99)
    true = {a for a, _ in program.edges}
    size = dict(zip(found.nodes, np.abs(found.score).tolist(), strict=True))
    least = min(size[name] for name in true)
    assert all(size[name] < least for name in size if name not in true)  # AUROC 1.00
    assert set(found.chosen.nodes) == true
    assert set(found.chosen.edges) == program.edges
    assert {told.partition(",")[0] for told in found.measured} == {"patched alone"}


@pytest.mark.parametrize("name", COMPLETE)
def test_greedy_removal_keeps_the_edges_of_the_weights_and_no_other(name):
    task, program = pairs_of(name), program_of(name)
    model = setting(name)[0].model
    for rule in ("increase", "absolute"):
        found = acdc(model, task, "edge", rule=rule)
        kept = {(row["from"], row["to"]) for row in found.tables["smallest_edges"]}
        assert kept == program.edges, rule
    every = acdc(model, task, "edge", rule="absolute", threshold=0.0)
    assert every.tables["smallest"][0]["kept"] == pytest.approx(1, abs=1e-4)


def test_a_gradient_misses_what_saturated_softmaxes_hide():
    """Tracr's attention is all or nothing: one gradient by its scores is 0, a path's is not."""
    graph, clean, corrupted, value = setting("sort")
    edges, pair = (
        program_of("sort").edges,
        RunPair(graph, clean, corrupted, value, Passes()),
    )
    assert auroc(graph, edges, edges_by_gradient(pair)) < 0.8
    assert auroc(graph, edges, edges_along_inputs(pair, steps=32)) == 1
    assert auroc(graph, edges, edges_along_activations(pair, steps=32)) == 1


def test_what_pairs_share_is_found_by_nobody():
    """`reverse` needs the length, which is the same in both prompts: those edges score nothing."""
    graph, clean, corrupted, value = setting("reverse")
    scores = edges_by_gradient(RunPair(graph, clean, corrupted, value, Passes())).abs().mean(0)
    lengths = [e for e in program_of("reverse").edges if "mlp" in "".join(e)]
    assert lengths
    assert float((scores * graph.mask(lengths)).max()) < 1e-5
    assert float(scores.max()) > 0.1


def test_a_trace_starts_where_mlps_read_all_that_heads_write():
    """`hist` counts with one head, which an MLP reads: no head acts on the output directly."""
    graph, clean, corrupted, value = setting("hist")
    named = Task(
        "hist",
        Prompts(tuple(map(tuple, clean.tolist()))),
        ((0,),) * len(clean),
        "share",
        True,
        read_rows=lambda logits, rows, clean: logits.sum(-1),
        corrupted=Prompts(tuple(map(tuple, corrupted.tolist()))),
    )
    (batch,) = ContrastTask(named).batches()
    scores = LinearScores(graph.model, batch.clean)
    found, direct = seeds(graph.model, batch, value, scores, 0.7, set())
    assert not direct
    assert {name for start in found for name, _ in start} == {"L0H0"}
    for start in filter(None, found):
        assert sum(start.values()) == pytest.approx(1)


def test_unknown_words_are_refused_by_name():
    program = program_of("hist")
    with pytest.raises(OptionError, match="'z'"):
        program.ids(["a", "z"])


def test_a_set_has_no_node_that_does_nothing_though_the_task_needs_several_at_once() -> None:
    """Heads that do nothing alone, in the circuit and outside, are told apart within the set."""
    model = interp.load("compiled:shuffle_dyck+detect_pattern+count")
    task = make_contrast(model, "compiled:shuffle_dyck", n=32, seed=0)
    chosen = find_circuit(model, task).chosen
    heads = {name for name in chosen.nodes if name.startswith("L")}
    assert heads == {name for names in task.truth.values() for name in names if name[0] == "L"}
    assert chosen.share.value > 0.99
