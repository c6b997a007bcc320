"""One interchange in the subspace of one head, against pyvene and against a hook by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import interp
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.variables.interchanges import PlacedInterchange
from interp.circuits.variables.places import InterchangeRuns, Subspace, places_of

BASE, SOURCE = (1, 30, 41, 52, 63, 30), (1, 35, 46, 57, 68, 35)
TOKENS = [30, 41, 46, 52, 57]
# Logits of these tokens by pyvene 0.1.8 (unit "h.pos" of head_attention_value_output, layer 1,
# position 5), for the plane of `_plane`.
PYVENE = {
    2: [9.51951, 13.56271, 7.91511, 3.8803, 1.52069],
    5: [9.91119, 13.27341, 7.28009, 3.6337, 1.19704],
}


def _plane() -> torch.Tensor:
    at = torch.arange(16.0)
    return torch.linalg.qr(torch.stack([(at * 0.7).sin(), (at * 1.3 + 1).cos()], 1)).Q


def _exchanged(model: interp.Model, head: int) -> torch.Tensor:
    graph = ResidualGraph.of(model)
    [place] = places_of(graph, [f"L1H{head}"])
    row = PlacedInterchange(BASE, SOURCE, 46, 41, "value", "", 5)
    runs = InterchangeRuns(graph, [row])
    with torch.no_grad():
        return runs.logits(runs.groups[0], replace(place, position=5), Subspace.of([_plane()]))[0]


@pytest.mark.parametrize("head", PYVENE)
def test_an_exchange_is_that_of_pyvene_on_a_saved_case(head: int) -> None:
    found = _exchanged(interp.load("bundled:induction"), head)
    torch.testing.assert_close(found[TOKENS], torch.tensor(PYVENE[head]), atol=2e-4, rtol=0)


def test_an_exchange_is_that_of_a_hook_on_the_output_projection() -> None:
    model, head = interp.load("bundled:induction"), 2
    projection = model.module.get_submodule("model.layers.1.self_attn.o_proj")
    seen, plane = [], _plane()
    columns = slice(16 * head, 16 * head + 16)

    def keep(module, args) -> None:
        seen.append(args[0][0, 5, columns].clone())

    def put(module, args):
        x = args[0].clone()
        x[0, 5, columns] += (seen[0] - x[0, 5, columns]) @ plane @ plane.T
        return (x,)

    with torch.no_grad():
        handle = projection.register_forward_pre_hook(keep)
        model.module(input_ids=torch.tensor([SOURCE]))
        handle.remove()
        handle = projection.register_forward_pre_hook(put)
        expected = model.module(input_ids=torch.tensor([BASE])).logits[0, -1]
        handle.remove()
    torch.testing.assert_close(_exchanged(model, head), expected, atol=1e-5, rtol=1e-5)
