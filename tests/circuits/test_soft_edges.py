"""The differentiable edge forward: against the exact one and GPT-2 written out by hand."""

from __future__ import annotations

import pytest
import torch
import zoo
from circuits.slow_gpt2 import forward
from circuits.transformer_lens_scores import CLEAN, CORRUPTED

import interp
from interp.circuits.edge_forward import EdgeForward, SoftEdges
from interp.circuits.residual_graph import ResidualGraph
from interp.core.errors import OptionError

FAMILIES = ("gpt2", "llama", "gpt_neox", "gpt_neo", "falcon", "granite", "qwen3", "opt")


def soft_and_exact(name: str) -> tuple[SoftEdges, EdgeForward]:
    family = zoo.FAMILIES[name]
    graph = ResidualGraph.of(interp.load(family.model(family.attentions[-1]), name=name))
    edges = EdgeForward(graph, CLEAN, CORRUPTED)
    return SoftEdges(edges), edges


def drawn(graph: ResidualGraph, seed: int = 0) -> torch.Tensor:
    share = torch.rand(
        len(graph.readers), len(graph.writers), generator=torch.Generator().manual_seed(seed)
    )
    return share * graph.full()


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_logits_as_the_exact_forward(name) -> None:
    soft, edges = soft_and_exact(name)
    graph = edges.graph
    for mask in (graph.full(), 0 * graph.full(), drawn(graph), drawn(graph, 1).round()):
        torch.testing.assert_close(soft.run(mask), edges.run(mask), atol=2e-5, rtol=1e-4)
    assert soft.forwards == 4


def test_logits_and_gradient_are_those_of_the_model_written_out() -> None:
    soft, edges = soft_and_exact("gpt2")
    graph, module = edges.graph, edges.model.module
    with torch.no_grad():
        _, other = forward(module, CORRUPTED, lambda w, r: 1.0)
    mask = drawn(graph).requires_grad_()
    mine = soft.run(mask)

    def share(writer: str, reader: str):
        return mask[graph.reader_index[reader], graph.index[writer]]

    theirs, _ = forward(module, CLEAN, share, other)
    torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)
    weight = torch.randn(mine.shape, generator=torch.Generator().manual_seed(2))
    (a,) = torch.autograd.grad((mine * weight).sum(), mask)
    (b,) = torch.autograd.grad((theirs * weight).sum(), mask)
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
    assert (a[graph.full() == 1] != 0).float().mean() > 0.9
    assert not a[graph.full() == 0].any()


def test_a_mask_of_another_shape_is_refused() -> None:
    soft, _ = soft_and_exact("gpt2")
    with pytest.raises(OptionError, match=r"an edge mask of shape \(2, 2\); expected"):
        soft.run(torch.ones(2, 2))
