"""Passes of a command: what the blocks of its models compute, by shape of the batch.

A pass is counted where the products with the weights of the blocks run, by the share of the
weights: a pass that starts at the middle is half a pass, and so is one that computes the half of
every block; a pass of a random model is a pass. A backward pass is counted where a gradient
arrives at such a product.

    python -m benchmarks.command_counts

counts the passes of the lines in tests/cli/command_counts.toml again; its diff is reviewed.
"""

from __future__ import annotations

import contextlib
import math
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary, WeakSet

from benchmarks.command_cases import ROOT, words_of

TABLE = ROOT / "tests" / "cli" / "command_counts.toml"
HEADER = """\
# Passes of command lines, with every random model of their nulls: forward and backward, and the
# tokens of those forward. Written by `python -m benchmarks.command_counts`; a line that is added
# with any figures is counted too. Figures that rise need a reason in the commit.
"""

Shape = tuple[int, ...]


@dataclass
class Counts:
    """Passes by the shape of their batch (prompts and positions), forward and backward."""

    forward: Counter[Shape] = field(default_factory=Counter)
    backward: Counter[Shape] = field(default_factory=Counter)

    def figures(self) -> dict[str, float]:
        """Return the forward passes, the backward passes, and the tokens of the forward passes."""
        tokens = sum(count * _size(shape) for shape, count in self.forward.items())
        figures = (self.forward.total(), self.backward.total(), tokens)
        named = zip(("forward", "backward", "tokens"), figures, strict=True)
        return {name: round(float(figure), 2) for name, figure in named}


def _size(shape: Shape) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _shares(block: Any) -> dict[Any, float]:
    """Return the share of a pass of each product of a block, by the weights of all blocks."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    configs = (part.config for part in block.modules() if hasattr(part, "config"))
    n_blocks = next(configs).num_hidden_layers
    sizes = {
        part: part.weight.numel()
        for part in block.modules()
        if isinstance(part, nn.Linear | Conv1D)
    } or {block: 1}
    return {part: size / sum(sizes.values()) / n_blocks for part, size in sizes.items()}


@contextlib.contextmanager
def counting() -> Iterator[Counts]:
    """Count the passes of all models that run in this process meanwhile."""
    from torch.nn.modules import module as hooks
    from transformers.modeling_layers import GradientCheckpointingLayer

    counts = Counts()
    known: WeakSet[Any] = WeakSet()
    shares: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    def came_back(shape: Shape, share: float, _: Any) -> None:
        counts.backward[shape] += share  # type: ignore[assignment]

    def enter(module: Any, _: Any) -> None:
        if isinstance(module, GradientCheckpointingLayer) and module not in known:
            known.add(module)
            shares.update(_shares(module))

    def leave(module: Any, _: Any, output: Any) -> None:
        share = shares.get(module)
        if share is not None:
            x = output[0] if isinstance(output, tuple) else output
            shape = tuple(x.shape[:-1])
            counts.forward[shape] += share  # type: ignore[assignment]
            if x.requires_grad:
                x.register_hook(partial(came_back, shape, share))

    handles = (
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave),
    )
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()


def counts_of(line: str, given: dict[str, str]) -> dict[str, float]:
    """Run a command line in this process, with no null from before, and return its passes."""
    from click.testing import CliRunner

    from interp.causal.game import pace
    from interp.cli.main import main

    # the one number of passes that asks a clock: passes are timed again unless they take long
    untimed = mock.patch.object(pace, "_LONG", math.inf)
    with untimed, tempfile.TemporaryDirectory() as empty, counting() as counts:
        alone = {"XDG_CACHE_HOME": empty}
        CliRunner(env=alone).invoke(main, words_of(line, given), catch_exceptions=False)
    return counts.figures()


def write() -> None:
    """Write the counts of the lines in the table again."""
    sys.path.insert(0, str(ROOT / "tests"))
    from device.command_lines import files_of  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder:
        given = files_of(Path(folder))
        rows = [
            f'"{line}" = {{ {", ".join(f"{k} = {v}" for k, v in counts_of(line, given).items())} }}'
            for line in tomllib.loads(TABLE.read_text(encoding="utf-8"))
        ]
    TABLE.write_text(HEADER + "".join(f"{row}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    write()
