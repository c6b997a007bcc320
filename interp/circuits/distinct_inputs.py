"""Inputs of heads that are exchanged, by copy of the prompts: equal ones are run once.

Under a stack of masks most copies exchange the inputs of few heads, and often of the same ones. A
block is run on the inputs that differ from those of the run itself, many at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.causal.game.patching import rebuilt, tensors_in, tiled

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.circuits.attention_parts import AttentionTensors
    from interp.circuits.reader_inputs import ReaderGroup
    from interp.circuits.residual_graph import Reader

    Exchanged = dict[Reader, list[tuple[list[int], Float[Tensor, "copy batch pos d_head"]]]]

MOST_ROWS = 512  # positions that are run at a time, if the copies of a run have no more


@dataclass(eq=False)
class DistinctInputs:
    """Runs a block on the distinct inputs of its heads.

    Args:
        copies: Number of copies of the prompts in the run.
        x: The residual stream of the run that enters the block.
        given: The arguments of the block, with this stream among them.
        run: Runs the block with other arguments until its queries, keys and values are known.

    Attributes:
        exchanged: By reader, the copies whose input differs, with the reader's query, key or value.
    """

    copies: int
    x: Float[Tensor, "row pos d_model"]
    given: Any
    run: Callable[[Any], AttentionTensors]
    exchanged: Exchanged = field(default_factory=dict)
    _inputs: list[Tensor] = field(default_factory=list)
    _numbers: dict[tuple[int, bytes], int] = field(default_factory=dict)
    _waiting: list[tuple[ReaderGroup, list[int], list[int]]] = field(default_factory=list)

    def fits(self) -> bool:
        """Return True if the other arguments are the same for every copy of the prompts."""
        rows = len(self.x)
        for y in tensors_in(self.given):
            if y is not self.x and y.dim() and len(y) == rows and y.stride(0):
                by_copy = y.reshape(self.copies, -1, *y.shape[1:])
                if not torch.equal(by_copy, by_copy[:1].expand_as(by_copy)):
                    return False
        return True

    def read(
        self, inputs: Iterable[tuple[ReaderGroup, Float[Tensor, "row pos d_model"]]]
    ) -> Exchanged:
        """Return the queries, keys and values of the readers of some groups, given their inputs."""
        most = max(self.copies, self.copies * MOST_ROWS // (len(self.x) * self.x.shape[1]))
        for group, x in inputs:
            changed = group.mask.ne(1).any(1).nonzero().flatten().tolist()
            if len(self._inputs) + len(changed) > most:
                self._run()
            by_copy, rows = x.reshape(self.copies, -1, *x.shape[1:]), group.mask.cpu().numpy()
            places = []
            for copy in changed:
                key = copy, rows[copy].tobytes()
                if key not in self._numbers:
                    self._numbers[key] = len(self._inputs)
                    self._inputs.append(by_copy[copy].clone())
                places.append(self._numbers[key])
            self._waiting.append((group, changed, places))
        self._run()
        return self.exchanged

    def _run(self) -> None:
        n, rows = len(self._inputs), len(self.x)
        if n:
            batch = rows // self.copies
            new = torch.cat(self._inputs)
            tensors = [
                new if y is self.x else tiled(y[:batch], n) if y.dim() and len(y) == rows else y
                for y in tensors_in(self.given)
            ]
            found = self.run(rebuilt(self.given, iter(tensors)))
            for group, changed, places in self._waiting:
                for reader in group.readers:
                    part = getattr(found, reader.part)
                    part = part.reshape(n, batch, *part.shape[1:])[places, :, reader.head]
                    self.exchanged.setdefault(reader, []).append((changed, part))
        self._inputs, self._numbers, self._waiting = [], {}, []
