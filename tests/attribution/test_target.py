"""Positions of targets: counted over the real tokens of each row, and refused outside them."""

from __future__ import annotations

import pytest
import torch

import interp
from interp.attribution.target import token_logit
from interp.core.errors import OptionError

REAL = torch.tensor([[False, True, True, True], [True, True, False, False]])


@pytest.mark.parametrize(("position", "columns"), [(0, [1, 0]), (1, [2, 1]), (-1, [3, 1])])
def test_positions_are_counted_over_real_tokens(
    bundled_one_layer: interp.Model, position: int, columns: list[int]
) -> None:
    output = torch.arange(2 * 4 * 9).float().reshape(2, 4, 9)
    read = token_logit(bundled_one_layer, 5, position=position).read
    assert read(output, REAL).tolist() == [float(output[i, at, 5]) for i, at in enumerate(columns)]


@pytest.mark.parametrize("position", [2, -3, 9])
def test_a_position_outside_the_shortest_row_is_refused(
    bundled_one_layer: interp.Model, position: int
) -> None:
    read = token_logit(bundled_one_layer, 5, position=position).read
    with pytest.raises(OptionError, match=f"position {position} lies outside an input of 2 tokens"):
        read(torch.zeros(2, 4, 9), REAL)
