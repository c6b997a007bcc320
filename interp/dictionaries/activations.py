"""Activations of one place as a shuffled stream of rows, with a bound on the memory it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import NonFiniteError, OptionError, PromptError
from interp.core.prompts import Prompts
from interp.model.layer_tensors import place_width, require_place, run_at

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

ROWS = 2**16  # rows that the buffer holds at most
FIRST = 1  # positions at the beginning of each prompt that are left out
RowPair = tuple[Float[Tensor, "row d_in"], Float[Tensor, "row d_out"]]


def activation_rows(
    model: Model, prompts: Prompts, site: Site, names: tuple[str, str], first: int = FIRST
) -> RowPair:
    """Return the rows of one batch of prompts at two places, without padding and first tokens."""
    seen: dict[str, Tensor] = {}

    def keeper(name: str):
        def keep(x: Tensor) -> None:
            seen[name] = x.float()

        return keep

    _, real = run_at(model, prompts, site, {name: keeper(name) for name in set(names)}, last=1)
    counted = counted_rows(real, first)
    rows = {name: x[counted] for name, x in seen.items()}
    for name, x in rows.items():
        if not bool(torch.isfinite(x).all()):
            raise NonFiniteError(f"{model.name}: NaN or infinity in {name} of {site.name}")
    return rows[names[0]].cpu(), rows[names[1]].cpu()


def counted_rows(real: Tensor, first: int) -> Tensor:
    """Return the mask of real tokens without the first ones of each prompt."""
    return real & (real.long().cumsum(1) > first)


@dataclass
class ActivationStream:
    """Shuffled stream of activations of one place, or of pairs of two places.

    The buffer holds at most `rows` rows of both places, so it takes 4 * rows * (d_in + d_out) bytes
    (4 * rows * d_in at one place), beside one batch of prompts in the model. If all rows of the
    prompts fit, the model runs once; otherwise half of the buffer is used up, in random order,
    before it is filled again.

    Args:
        model: the model.
        prompts: the prompts; they are repeated in a new order if more rows are asked for.
        site: the attention layer.
        names: the place that is read and the one that is reconstructed.
        rows: size of the buffer.
        first: positions at the beginning of each prompt that are left out: the first token attends
            only to itself.
        batch_size: prompts per forward pass.
        seed: seed of all orders.
    """

    model: Model
    prompts: Prompts
    site: Site
    names: tuple[str, str]
    rows: int = ROWS
    first: int = FIRST
    batch_size: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        self.prompts.check(self.model)
        for name in self.names:
            require_place(name, self.site)
        self.total = sum(max(len(ids) - self.first, 0) for ids in self.prompts.ids)
        if self.total == 0:
            raise PromptError(
                f"no prompt has more than {self.first} tokens, which are left out; give longer ones"
            )
        self.rng = np.random.default_rng(self.seed)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the buffer at most."""
        widths = {name: place_width(self.model, name, self.site) for name in self.names}
        return 4 * min(self.rows, self.total) * sum(widths.values())

    def batches(self, size: int) -> Iterator[RowPair]:
        """Yield batches of rows without end, each of `size` rows."""
        if 2 * size > self.rows:
            raise OptionError(
                f"batches of {size} rows need a buffer of at least {2 * size}, not {self.rows}"
            )
        if self.total <= self.rows:
            yield from self._of_all(size)
        held: list[Tensor] | None = None
        chunks = self._chunks()
        while True:
            parts = [] if held is None else [held]
            have = 0 if held is None else len(held[0])
            while have < self.rows // 2 or have < 2 * size:
                parts.append(list(next(chunks)))
                have += len(parts[-1][0])
            order = torch.from_numpy(self.rng.permutation(have))
            rows = [torch.cat(each)[order] for each in zip(*parts, strict=True)]
            used = max(size, have // 2 // size * size)
            for at in range(0, used, size):
                x, y = (r[at : at + size] for r in rows)
                yield x, y
            held = [r[used:].clone() for r in rows]

    def _of_all(self, size: int) -> Iterator[RowPair]:
        parts = [self._pair(batch) for batch in self.model.batches(self.prompts, self.batch_size)]
        x, y = (torch.cat(each) for each in zip(*parts, strict=True))
        order: list[int] = []
        while True:
            while len(order) < size:
                order += self.rng.permutation(len(x)).tolist()
            at, order = torch.tensor(order[:size]), order[size:]
            yield x[at], y[at]

    def _chunks(self) -> Iterator[RowPair]:
        """Yield the rows of one batch of prompts after another, in a new order each time."""
        while True:
            order = self.rng.permutation(len(self.prompts)).tolist()
            for batch in self.model.batches(self.prompts.part(order), self.batch_size):
                yield self._pair(batch)

    def _pair(self, batch: Prompts) -> RowPair:
        return activation_rows(self.model, batch, self.site, self.names, self.first)


def cut_texts(prompts: Prompts, max_length: int) -> Prompts:
    """Cut prompts to at most `max_length` tokens."""
    if max_length < 2:
        raise OptionError(f"{max_length} tokens per prompt are too few; give at least 2")
    return Prompts(
        tuple(ids[:max_length] for ids in prompts.ids),
        f"{prompts.design}, at most {max_length} tokens",
        prompts.padding,
        None,
        prompts.clusters,
    )
