"""A computer of one instruction runs programs as an interpreter does; without heads it cannot."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError
from interp.model.edits import zero
from training.forms.computer import Line, Machine, one_instruction

ADD = [(0, 2, 1), (2, 1, 2), (2, 2, 3), (3, 3, 3), (3, 3, 3), (3, 3, 3)]  # cell 1 += cell 0


def drawn(machine: Machine, seed: int) -> tuple[list[Line], list[int]]:
    rng = np.random.default_rng(seed)
    each = zip(
        *(rng.integers(n, size=machine.lines) for n in (machine.cells, machine.cells)),
        rng.integers(machine.lines, size=machine.lines),
        strict=True,
    )
    half = machine.values // 2
    memory = rng.integers(-half, half, size=machine.cells).tolist()
    return [(int(a), int(b), int(c)) for a, b, c in each], memory


@torch.no_grad()
@pytest.mark.parametrize(
    ("loops", "sizes"),
    [
        (1, {}),
        (4, {}),
        (25, {}),
        (3, {"cells": 3, "lines": 9, "values": 8}),
        (2, {"cells": 6, "lines": 2, "values": 6}),
    ],
)
def test_every_program_runs_as_in_an_interpreter(loops, sizes) -> None:
    machine = one_instruction(loops, **sizes)
    given = [drawn(machine, seed) for seed in range(30)]
    states = [machine.state(*one) for one in given]
    found = interp.load(machine.model).run(states).argmax(-1)
    moved = 0
    for one, state, tokens in zip(given, states, found, strict=True):
        line, memory = machine.run(*one, loops)
        assert machine.read(tokens.tolist()) == (line, memory)
        assert tokens[1 : 1 + machine.lines].tolist() == state[1 : 1 + machine.lines]
        moved += memory != one[1]
    assert moved > 15


@torch.no_grad()
def test_a_program_adds_two_numbers_and_its_output_is_the_next_prompt() -> None:
    machine = one_instruction(1)
    model = interp.load(machine.model)
    state = machine.state(ADD, [3, 2, 0, 0])
    for _ in range(3):
        state = model.run([state])[0].argmax(-1).tolist()
    assert machine.read(state) == (3, [3, 5, 0, 0])
    assert machine.run(ADD, [3, 2, 0, 0], 3) == (3, [3, 5, 0, 0])


@torch.no_grad()
def test_the_head_that_writes_is_the_only_way_into_memory() -> None:
    machine = one_instruction(1)
    model, state = interp.load(machine.model), machine.state(ADD, [3, 2, 0, 0])

    def after(*heads: tuple[int, int]) -> tuple[int, list[int]]:
        edits = [zero(list(heads))] if heads else []
        return machine.read(model.run([state], edits=edits)[0].argmax(-1).tolist())

    assert after() == (1, [3, 2, -3, 0])
    assert after((2, 0), (2, 1)) == (1, [3, 2, 0, 0])
    pattern = model.capture([state], ["pattern"], layers=2)["pattern", 2][0, 0]
    assert float(pattern[1 + machine.lines + 2, 0]) > 0.999  # the written cell reads the counter
    assert float(pattern[1 + machine.lines + 1, 1 + machine.lines + 1]) > 0.999


def test_sizes_and_states_that_do_not_fit_are_refused() -> None:
    for wrong in ({"loops": 0}, {"values": 7}, {"lines": 1}):
        with pytest.raises(OptionError, match="even number of values"):
            one_instruction(**wrong)
    machine = one_instruction()
    for program, memory in (
        ([(0, 4, 0), *ADD[1:]], [0] * 4),
        ([(0, 0, 6), *ADD[1:]], [0] * 4),
        (ADD, [8, 0, 0, 0]),
        (ADD[1:], [0] * 4),
        (ADD, [0] * 3),
    ):
        with pytest.raises(OptionError, match="give 6 lines"):
            machine.state(program, memory)
