"""Passes on the positions after the first difference equal those on all positions."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import zoo
from circuits.slow_gpt2 import forward

import interp
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.shared_prefix import HeldCache

CLEAN = torch.tensor([[9, 33, 21, 40, 33, 21, 21, 17, 9, 33], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
CORRUPTED = torch.tensor([[9, 33, 21, 40, 5, 6, 7, 17, 9, 33], [1, 2, 3, 4, 5, 11, 7, 12, 13, 10]])
READ = [[5, 9], [9]]
FAMILIES = ("gpt2", "llama", "gpt_neox", "gpt_neo", "falcon", "opt", "mixtral", "granite", "qwen3")
NORMED = [pytest.param(name, marks=pytest.mark.slow) for name in ("gemma3", "olmo2")]


@cache
def graph_of(name: str) -> ResidualGraph:
    family = zoo.FAMILIES[name]
    return ResidualGraph.of(interp.load(family.model(family.attentions[-1]), name=name))


def edges_of(name: str, corrupted: torch.Tensor = CORRUPTED) -> EdgeForward:
    return EdgeForward(graph_of(name), CLEAN, corrupted, read_at=READ, columns=[7, 2])


def masks_of(graph: ResidualGraph) -> torch.Tensor:
    """Masks of few and many edges, of one edge left out, and of whole nodes."""
    drawn = torch.rand(graph.full().shape, generator=torch.manual_seed(0))
    one, node = graph.full(), graph.full()
    one[-2, 1], node[:, 2] = 0, 0
    return torch.stack([*(graph.full() * (drawn < share) for share in (0.1, 0.5, 0.9)), one, node])


@pytest.mark.parametrize("name", [*FAMILIES, *NORMED])
def test_the_later_positions_alone_give_the_same(name, monkeypatch) -> None:
    short, masks = edges_of(name), masks_of(graph_of(name))
    assert short.later is not None
    assert short.later.first == 4
    assert short.forwards == edges_of(name, CORRUPTED.flip(1)).forwards
    monkeypatch.setattr("interp.circuits.edge_forward.later_positions", lambda *_: None)
    whole = edges_of(name)
    for norm in ("exact", "freeze"):
        got, want = (edges.run(masks, norm=norm) for edges in (short, whole))
        torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)
        assert float((want[0] - want[2]).abs().max()) > 1e-3
    one, two = short.rows(masks), whole.rows(masks)
    assert (one is None) == (two is None)
    if one is not None:
        torch.testing.assert_close(one, two, atol=2e-5, rtol=1e-4)


def test_the_later_positions_give_the_logits_of_the_written_out_model() -> None:
    graph = graph_of("gpt2")
    module, short = graph.model.module, edges_of("gpt2")
    for mask in masks_of(graph):
        live = {
            (writer, reader.name)
            for i, reader in enumerate(graph.readers)
            for j, writer in enumerate(graph.writers)
            if mask[i, j]
        }
        with torch.no_grad():
            _, other = forward(module, CORRUPTED, lambda writer, reader: True)
            slow, _ = forward(module, CLEAN, lambda w, r, live=live: (w, r) in live, other)
        got = short.run(mask)
        for prompt, positions in enumerate(READ):
            torch.testing.assert_close(
                got[prompt, positions], slow[prompt, positions], atol=2e-5, rtol=1e-4
            )


def test_all_positions_run_where_few_are_shared_or_the_cache_is_not_exact(monkeypatch) -> None:
    assert edges_of("gpt2", CORRUPTED.flip(1)).later is None  # the first position differs
    before = EdgeForward(graph_of("gpt2"), CLEAN, CORRUPTED, read_at=[[2], [9]])
    assert before.later is None  # one that is read is shared
    own = HeldCache.update

    def shifted(self, key_states, value_states, layer_idx, *args, **kwargs):
        keys, values = own(self, key_states, value_states, layer_idx)
        return keys, values + 0.1

    monkeypatch.setattr(HeldCache, "update", shifted)
    wrong = edges_of("gpt2")
    assert wrong.later is None
    full = wrong.run(wrong.graph.full())
    torch.testing.assert_close(full[0, READ[0]], wrong.base.logits[0, READ[0]])
