"""Planted computer of one instruction: three layers that run a step of any SUBLEQ program.

The prompt is the state of the computer: a token for the program counter, one for each line of the
program, and one for each memory cell. The prediction at each position is its token after as many
steps as the model has loops, so that the output of a run is the prompt of the next.

    machine = one_instruction(2)
    model = interp.load(machine.model)
    state = machine.state([(0, 1, 2), (1, 1, 0), (2, 2, 2)], [3, 5, 0, 0])
    model.run([state])[0].argmax(-1)               # the state after two steps

A line (a, b, c) subtracts cell a from cell b, and goes to line c if the result is at most 0, else
to the next one; this instruction alone computes what any computer does. Registers are one-hot, and
subtraction is a table. Per loop: the counter fetches its line (layer 0); it reads the cells a and b
(two heads of layer 1), whose MLP subtracts; every cell attends to the counter if it is the one
written, else to itself, and erases its old value (two heads of layer 2), whose MLP moves the
counter and clears the registers.

Reference: Giannou et al. 2023, "Looped Transformers as Programmable Computers" (arXiv 2301.13196).
Registers there are binary, and its instruction is a general function; SUBLEQ is its first example.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError
from training.forms import build
from training.forms.language_model import VariantForCausalLM

Line: TypeAlias = tuple[int, int, int]

SHARP = 60.0  # nats by which the addressed position is preferred
STEEP = 40.0  # input of a GELU per unit, at which it is a ramp without a curve
PER_LOOP = 3  # layers
COUNTER, LINE, CELL = 2, 5, 3  # ones in the stream of each kind of token at the start


@dataclass(frozen=True, eq=False)
class Machine:
    """A planted model that is a computer, and the sizes of this computer.

    Args:
        model: the model.
        cells: number of memory cells.
        lines: number of lines of a program.
        values: number of values of a cell: whole numbers from -values / 2 on, which wrap around.
    """

    model: VariantForCausalLM
    cells: int
    lines: int
    values: int

    def state(self, program: Sequence[Line], memory: Sequence[int]) -> list[int]:
        """Return the prompt before the first step: counter, program, memory."""
        wrong = [x for x in program if not self._is_line(x)]
        wrong += [x for x in memory if not -self.values <= 2 * x < self.values]
        if wrong or len(program) != self.lines or len(memory) != self.cells:
            raise OptionError(
                f"give {self.lines} lines (a, b, c) with cells below {self.cells}, and "
                f"{self.cells} values from {-self.values // 2} to {self.values // 2 - 1}; "
                f"got {len(program)} and {len(memory)}, of which these are out of range: {wrong}"
            )
        codes = [(a * self.cells + b) * self.lines + c for a, b, c in program]
        first = self.values + self.lines
        return [self.values, *(first + x for x in codes), *(x % self.values for x in memory)]

    def read(self, state: Iterable[int]) -> tuple[int, list[int]]:
        """Return the line of the counter and the memory of a state."""
        tokens = [int(t) for t in state]
        half = self.values // 2
        memory = [(t + half) % self.values - half for t in tokens[1 + self.lines :]]
        return tokens[0] - self.values, memory

    def run(
        self, program: Sequence[Line], memory: Sequence[int], steps: int
    ) -> tuple[int, list[int]]:
        """Run a program without the model; return the line of the counter and the memory."""
        line, now, half = 0, list(memory), self.values // 2
        for _ in range(steps):
            a, b, c = program[line]
            now[b] = (now[b] - now[a] + half) % self.values - half
            line = c if now[b] <= 0 else (line + 1) % self.lines
        return line, now

    def _is_line(self, x: Line) -> bool:
        return len(x) == 3 and all(0 <= n < self.cells for n in x[:2]) and 0 <= x[2] < self.lines


def one_instruction(loops: int = 1, *, cells: int = 4, lines: int = 6, values: int = 16) -> Machine:
    """Build the computer; each loop runs one step."""
    if loops < 1 or min(cells, lines, values) < 2 or values % 2:
        raise OptionError(
            f"loops={loops}, cells={cells}, lines={lines}, values={values}: give at least 1 loop, "
            "2 cells and lines, and an even number of values"
        )
    sizes = {
        "line": lines,
        "a": cells,
        "b": cells,
        "c": lines,
        "is_line": 1,  # lines
        "address": cells,
        "value": values,
        "is_cell": 1,  # cells
        "counter": lines,
        "to_a": cells,
        "to_b": cells,
        "to_c": lines,
        "at_a": values,
        "at_b": values,
        "result": values,
        "above": 1,
        "at_most": 1,
        "is_counter": 1,
    }
    neurons = 2 * max(values**2, sum(sizes.values()))
    d_model = max(sum(sizes.values()), -(-neurons // 4))  # an MLP has four neurons per dimension
    d_head = max(2 * cells + lines, values, lines + 1, cells + 1)
    model: Any = build(
        "plain_softmax",
        gain=1.0,
        vocab_size=values + lines + cells * cells * lines,
        hidden_size=d_model,
        num_hidden_layers=PER_LOOP * loops,
        num_attention_heads=2,
        head_dim=d_head,
        max_position_embeddings=1 + lines + cells,
    )
    rows = torch.eye(sum(sizes.values()), d_model).split([*sizes.values()])
    one = dict(zip(sizes, rows, strict=True))
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        for norm in [model.norm, *(n for b in model.blocks for n in (b.norm, b.mlp_norm))]:
            norm.weight.fill_(1.0)
        _embed(model, one)
        for i, block in enumerate(model.blocks):
            block.attention.rule.causal = False
            (_fetch, _load, _store)[i % PER_LOOP](block, one)
    return Machine(model, cells, lines, values)


def _embed(model: Any, one: dict[str, Tensor]) -> None:
    a, b, c = torch.meshgrid(*(torch.arange(len(one[x])) for x in "abc"), indexing="ij")
    lines = one["a"][a.flatten()] + one["b"][b.flatten()] + one["c"][c.flatten()]
    tokens = {"is_cell": one["value"], "is_counter": one["counter"], "is_line": lines}
    model.embed.weight.copy_(torch.cat([one[kind] + rows for kind, rows in tokens.items()]))
    model.positions.weight[1:].copy_(torch.cat([one["line"], one["address"]]))
    model.head.weight.copy_(torch.cat([*tokens.values()]))


Reads: TypeAlias = list[tuple[float, Float[Tensor, "row d_model"]]]  # ones at the reader, rows


def _head(block: Any, head: int, queries: Reads, keys: Reads, values: Reads, out: Tensor) -> None:
    """Set a head's weights; after the norm, a token with n ones has entries sqrt(d_model / n)."""
    rule = block.attention.rule
    d_model, d_head = rule.query.in_features, rule.shape.d_head
    sharp = (SHARP * d_head**0.5) ** 0.5
    for part, reads, size in (
        (rule.query, queries, sharp),
        (rule.key, keys, sharp),
        (rule.value, values, 1.0),
    ):
        for ones, rows in reads:
            start = head * d_head
            part.weight[start : start + len(rows)] += size * (ones / d_model) ** 0.5 * rows
    block.attention.out.weight[:, head * d_head : head * d_head + len(out)] = out.T


def _neurons(block: Any, ones: int, rules: list[tuple[list[Tensor], Tensor]]) -> None:
    """Write what is added to the stream where all inputs are 1: two neurons, which end in a step.

    A single neuron would add in proportion to its inputs, and double their errors in each loop.
    """
    first, _, second = block.mlp
    scale = (ones / first.in_features) ** 0.5
    for i, (inputs, added) in enumerate(rules):
        for neuron, sign in ((2 * i, 1), (2 * i + 1, -1)):
            first.weight[neuron] = STEEP * scale * sum(inputs)
            first.bias[neuron] = STEEP * (0.5 + sign / 4 - len(inputs))
            second.weight[:, neuron] = sign * added / (STEEP / 2)


def _after(rows: Tensor, flag: Tensor) -> Tensor:
    """Return a flag as the row after as many rows of zeros."""
    return torch.cat([torch.zeros_like(rows), flag])


def _fetch(block: Any, one: dict[str, Tensor]) -> None:
    """Copy the line that the counter names; other tokens attend to the counter, which is empty."""
    lines = one["line"]
    idle = [(CELL, _after(lines, one["is_cell"])), (LINE, _after(lines, one["is_line"]))]
    _head(
        block,
        0,
        [(COUNTER, one["counter"]), *idle],
        [(LINE, lines), (COUNTER, _after(lines, one["is_counter"]))],
        [(LINE, torch.cat([one[x] for x in "abc"]))],
        torch.cat([one[f"to_{x}"] for x in "abc"]),
    )


def _load(block: Any, one: dict[str, Tensor]) -> None:
    """Read cells a and b, and subtract them."""
    cells, values, ones = one["address"], len(one["value"]), COUNTER + 3
    idle = [(CELL, _after(cells, one["is_cell"])), (LINE, _after(cells, one["is_line"]))]
    for head, name in enumerate("ab"):
        _head(
            block,
            head,
            [(ones, one[f"to_{name}"]), *idle],
            [(CELL, cells), (ones, _after(cells, one["is_counter"]))],
            [(CELL, one["value"])],
            one[f"at_{name}"],
        )
    rules = []
    for i in range(values):
        for j in range(values):
            left = (j - i) % values
            above = one["above" if 0 < left < values // 2 else "at_most"][0]
            rules.append(([one["at_a"][i], one["at_b"][j]], one["result"][left] + above))
    _neurons(block, ones + 2, rules)


def _store(block: Any, one: dict[str, Tensor]) -> None:
    """Write cell b, move the counter, and clear its registers."""
    cells, lines, ones = one["address"], one["counter"], COUNTER + 7
    rest = (LINE, _after(cells, one["is_line"]))
    idle = [(ones, _after(cells, one["is_counter"])), rest]
    _head(
        block,
        0,
        [(CELL, cells), *idle],
        [(CELL, cells / 2), (ones, one["to_b"]), rest],
        [(CELL, one["value"]), (ones, one["result"])],
        one["value"],
    )
    _head(
        block,
        1,
        [(CELL, cells), *idle],
        [(CELL, cells), rest],
        [(CELL, one["value"])],
        -one["value"],
    )
    rules = [([one["at_most"][0], go], at) for go, at in zip(one["to_c"], lines, strict=True)]
    rules += [([one["above"][0], at], lines[(i + 1) % len(lines)]) for i, at in enumerate(lines)]
    cleared = ("counter", "to_a", "to_b", "to_c", "at_a", "at_b", "result", "above", "at_most")
    rules += [([row], -row) for name in cleared for row in one[name]]
    _neurons(block, ones, rules)
