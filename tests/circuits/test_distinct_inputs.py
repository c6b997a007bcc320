"""Heads whose inputs are exchanged, under several masks at once: each input is run once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import zoo

import interp
from interp.circuits.distinct_inputs import DistinctInputs
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.edge_run import EdgeRun
from interp.circuits.residual_graph import ResidualGraph

CLEAN = torch.tensor([[9, 33, 21, 40, 33, 21, 21, 17], [1, 2, 3, 4, 5, 6, 7, 8]])
CORRUPTED = torch.tensor([[30, 3, 2, 40, 5, 6, 7, 17], [8, 1, 3, 4, 5, 11, 7, 12]])


def edges_of(name: str) -> EdgeForward:
    family = zoo.FAMILIES[name]
    graph = ResidualGraph.of(interp.load(family.model(family.attentions[-1]), name=name))
    return EdgeForward(graph, CLEAN, CORRUPTED)


def masks_of(graph: ResidualGraph) -> torch.Tensor:
    """Masks without one edge, the same and others, and of all and of half of the edges.

    Two edges from one writer give two readers the same input, in the second mask only. In the fifth
    the layer before is changed too, so that the same edge gives another input.
    """
    some = [r.name for r in graph.readers if r.order == 1 and r.kind == "head"]
    rows = [[("L0H1", some[0])], [("L0H1", some[0]), ("L0H1", some[-1])], [("L0H0", some[-1])], []]
    rows.append([("embed", "L0H1.v"), ("L0H1", some[0])])
    masks = [graph.full() - graph.mask(out) for out in rows]
    drawn = torch.rand(graph.full().shape, generator=torch.manual_seed(0))
    return torch.stack([*masks, graph.full() * (drawn < 0.5)])


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neo", "gpt_neox", "falcon", "opt", "qwen3"])
def test_masks_at_once_give_what_each_gives_alone(name) -> None:
    edges = edges_of(name)
    masks = masks_of(edges.graph)
    for norm in ("exact", "freeze"):
        got = edges.run(masks, norm=norm)
        want = torch.stack([edges.run(mask, norm=norm) for mask in masks])
        torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)
        apart = (want[:, None] - want[None]).abs().flatten(2).amax(2)
        assert bool((apart[~torch.eye(len(masks), dtype=torch.bool)] > 1e-4).all())


def test_an_input_that_two_heads_share_is_run_once(monkeypatch) -> None:
    edges, rows = edges_of("gpt2"), []
    own = EdgeRun._until

    def until(self, mode, block, given):
        rows.append((mode, len(given[0][0])))
        return own(self, mode, block, given)

    monkeypatch.setattr(EdgeRun, "_until", until)
    edges.run(masks_of(edges.graph)[:4])
    assert rows == [("heads", 3 * len(CLEAN))]  # of 2 groups of readers for 4 masks


def test_other_arguments_that_differ_between_copies_are_not_shortened() -> None:
    run: Any = None  # no block is run
    x, same = torch.rand(6, 3, 2), torch.rand(2, 3).repeat(3, 1)
    for other, fits in ((same, True), (torch.rand(6, 3), False), (torch.rand(1, 3), True)):
        assert DistinctInputs(3, x, ((x,), {"mask": other}), run).fits() == fits
    assert DistinctInputs(1, x, ((x,), {}), run).fits()


def test_inputs_of_one_copy_are_run_together(monkeypatch) -> None:
    edges, rows = edges_of("gpt2"), []
    names = [r.name for r in edges.graph.readers if r.order == 1 and r.kind == "head"]
    mask = edges.graph.full() - edges.graph.mask([("L0H0", names[0]), ("L0H1", names[-1])])
    own = EdgeRun._until

    def until(self, mode, block, given):
        rows.append(len(given[0][0]))
        return own(self, mode, block, given)

    monkeypatch.setattr(EdgeRun, "_until", until)
    together = edges.run(mask)
    monkeypatch.setattr("interp.circuits.distinct_inputs.MOST_ROWS", 0)
    one_by_one = edges.run(mask)
    assert rows == [2 * len(CLEAN), len(CLEAN), len(CLEAN)]
    torch.testing.assert_close(together, one_by_one, atol=2e-5, rtol=1e-4)
    assert float((together - edges.base.logits).abs().max()) > 1e-4
