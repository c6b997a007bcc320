"""Terms followed from queries and keys to a bias, through the steps that families write."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import ComputedCall
from interp.model.hooks.score_terms import ScoreTerms, contents

TO_PLACE, TO_CONTENT = "content_to_position", "position_to_content"
X, QKV = torch.randn(1, 5, 8), torch.randn(24, 8)
PLACES = torch.randn(1, 2, 4, 5)  # [_, head, d_head, place]


def told_apart(
    bias: Callable[[Tensor, Tensor, Tensor], Tensor], part: str = "bias"
) -> tuple[dict, dict]:
    """Return the terms that are found, and those computed; one projection makes q, k and v."""
    inputs = X.clone()
    terms = ScoreTerms([inputs])
    with terms:
        q, k, v = (
            part.view(1, 5, 2, 4).transpose(1, 2)
            for part in torch.nn.functional.linear(inputs, QKV).chunk(3, dim=-1)
        )
        added = {part: bias(q, k, inputs)}
        call = ComputedCall(q.contiguous() * 1, k, v, v, scale=1.0, **added)
        found = terms.of(call, "a layer")
    return found, {TO_PLACE: q @ PLACES, TO_CONTENT: (k @ PLACES).mT}


def subtracted(q: Tensor, k: Tensor, x: Tensor) -> Tensor:
    return torch.full((5, 5), 7.0) - q @ PLACES / 2


def added_in_place(q: Tensor, k: Tensor, x: Tensor) -> Tensor:
    score = 0
    score += (q @ PLACES) * 2
    score += (k @ PLACES).transpose(-1, -2)
    return score + torch.arange(5.0)


def product_changed_in_place(q: Tensor, k: Tensor, x: Tensor) -> Tensor:
    score = q @ PLACES
    score += (k @ PLACES).mT
    return score


def padded_and_joined(q: Tensor, k: Tensor, x: Tensor) -> Tensor:
    wide = torch.nn.functional.pad(q @ PLACES, (1, 0))
    joined = torch.cat([torch.ones(1, 2, 5, 1), wide[..., 1:]], -1)
    return joined[..., 1:] + (q @ PLACES)


def written_into(buffer: Tensor, x: Tensor) -> Tensor:
    buffer[..., 1:] = x[..., 1:]
    return buffer


def gathered(q: Tensor, k: Tensor, x: Tensor) -> Tensor:
    at = torch.arange(4, -1, -1).expand(1, 2, 5, 5)
    return (q @ PLACES).gather(-1, at).to(torch.float64).unsqueeze(0).squeeze(0)


@pytest.mark.parametrize(
    ("bias", "wanted"),
    [
        (subtracted, lambda c: {TO_PLACE: -c[TO_PLACE] / 2}),
        (added_in_place, lambda c: {TO_PLACE: 2 * c[TO_PLACE], TO_CONTENT: c[TO_CONTENT]}),
        (product_changed_in_place, dict),
        (padded_and_joined, lambda c: {TO_PLACE: 2 * c[TO_PLACE]}),
        (gathered, lambda c: {TO_PLACE: c[TO_PLACE].flip(-1).double()}),
        (lambda q, k, x: torch.ones(5, 5), lambda c: {}),
    ],
)
def test_terms_keep_their_numbers_through_every_step(bias, wanted) -> None:
    found, computed = told_apart(bias)
    assert found.keys() == wanted(computed).keys()
    for name, numbers in wanted(computed).items():
        torch.testing.assert_close(found[name], numbers)


@pytest.mark.parametrize(
    "bias",
    [
        lambda q, k, x: x.mean() * torch.ones(5, 5),  # of the prompt as a whole
        lambda q, k, x: (q @ PLACES).tanh(),
        lambda q, k, x: (q @ PLACES) * x.mean(),
        lambda q, k, x: (q @ PLACES).mul_(2),
        lambda q, k, x: torch.nn.functional.pad(q @ PLACES, (1, 0), value=1.0)[..., 1:],
        lambda q, k, x: torch.nn.functional.linear(x, QKV)[..., :5] @ torch.eye(5),  # its own
        lambda q, k, x: q @ PLACES + x[..., :1],
        lambda q, k, x: torch.add(q @ PLACES, q @ PLACES, alpha=2),
        lambda q, k, x: written_into(torch.zeros(1, 2, 5, 5), q @ PLACES),
    ],
)
def test_what_is_not_known_is_refused(bias) -> None:
    with pytest.raises(UnreadableAttention, match="a layer adds to its scores what depends on the"):
        told_apart(bias)


def test_masks_and_places_are_no_contents() -> None:
    ids, pixels = torch.ones(1, 3, dtype=torch.long), torch.ones(1, 3, 4, 4)
    given = {
        "input_ids": ids,
        "attention_mask": ids,
        "position_ids": ids,
        "token_type_ids": ids,
        "bbox": pixels,
        "pixel_values": pixels,
        "last": 1,
    }
    found = contents(given)
    assert [id(x) for x in found] == [id(ids), id(pixels)]
    terms = ScoreTerms([ids])
    with terms:
        places = ids.ne(1).int().cumsum(1)
        zero = torch.zeros_like(ids) + torch.arange(3).expand_as(ids)
        moved = ids + 1
    assert not terms._content([places, zero])
    assert terms._content([moved])


def test_a_mask_of_numbers_is_told_apart_as_a_bias() -> None:
    found, computed = told_apart(added_in_place, "mask")
    torch.testing.assert_close(found[TO_PLACE], 2 * computed[TO_PLACE])
    with pytest.raises(UnreadableAttention):
        told_apart(lambda q, k, x: (q @ PLACES).tanh(), "mask")
    assert told_apart(lambda q, k, x: torch.zeros(5, 5), "mask")[0] == {}
