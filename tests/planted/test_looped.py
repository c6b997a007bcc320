"""A layer that is repeated follows links, for every table; without its heads it does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError
from interp.model.edits import zero
from training.forms.looped_program import looped

SIZE = 10


def table(seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(rng.integers(0, i + 1)) for i in range(SIZE)]


def followed(links: list[int], start: int, steps: int) -> int:
    for _ in range(steps):
        start = links[start]
    return start


@torch.no_grad()
@pytest.mark.parametrize("loops", [1, 2, 5])
def test_every_loop_follows_the_table_one_step(loops) -> None:
    model = interp.load(looped(loops, size=SIZE))
    tables = [table(seed) for seed in range(20)]
    logits = model.run(tables)
    for links, found in zip(tables, logits, strict=True):
        for i in range(SIZE):  # every position runs the program from its own link
            assert int(found[i].argmax()) == followed(links, links[i], loops)
    weights = [b.attention.rule.query.weight for b in model.module.blocks]  # type: ignore[union-attr]
    assert all(torch.equal(w, weights[0]) for w in weights)  # one layer, looped


@torch.no_grad()
def test_only_ablating_the_heads_of_a_loop_stops_the_program() -> None:
    model, links = interp.load(looped(3, size=SIZE)), [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]

    def reached(heads: list[tuple[int, int]]) -> int:
        edits = [zero(heads)] if heads else []
        return int(model.run([links], edits=edits)[0, -1].argmax())

    assert reached([]) == 5
    # a step that neither reads nor erases leaves the pointer where it is
    assert reached([(2, 0), (2, 1)]) == 6
    assert reached([(1, 0), (1, 1), (2, 0), (2, 1)]) == 7
    cache = model.capture([links], ["pattern"], layers=1)
    pattern = cache["pattern", 1][0]
    assert int(pattern[0, -1].argmax()) == 7  # the pointer after one step
    assert float(pattern[0, -1].max()) > 0.999
    torch.testing.assert_close(pattern[1], torch.eye(SIZE))


def test_sizes_that_hold_no_program_are_refused() -> None:
    for wrong in ({"loops": 0}, {"size": 1}):
        with pytest.raises(OptionError, match="at least 1 loop"):
            looped(**wrong)
