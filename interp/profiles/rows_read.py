"""Rows of attention of one window after the other, taken from the model's own forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.model.calls.call import Call
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from interp.model.model import Model
    from interp.profiles.corpus import TextWindow

FLOOR = 0.02  # attention off the sink below which a query is not described


@dataclass(frozen=True, eq=False)
class AttentionRows:
    """Attention of the sampled queries of one window at one site, on the CPU.

    Args:
        mass: attention on every key off the sink; rows sum to `weight`.
        visible: keys that a query may see, without the sink.
        weight: attention of every query off the sink; 0 below the floor.
        sink: attention of every query on the sink.
        call: the attention call that they are of; None for rows that are of no model.
    """

    mass: Float[Tensor, "head row pos"]
    visible: Bool[Tensor, "row pos"]
    weight: Float[Tensor, "head row"]
    sink: Float[Tensor, "head row"]
    call: Call | None = None

    @cached_property
    def negentropy(self) -> Float[Tensor, "head row"]:
        """Sum of p log p of every row, times its weight, in nats."""
        entropies = torch.special.xlogy(self.mass, self.mass).sum(-1)
        return entropies - torch.special.xlogy(self.weight, self.weight)

    def at(self, queries: Int[np.ndarray, " row"]) -> AttentionRows:
        """Return the rows of some queries."""
        mass, weight, sink = (x[:, queries] for x in (self.mass, self.weight, self.sink))
        return AttentionRows(mass, self.visible[queries], weight, sink, self.call)

    @classmethod
    def of(
        cls,
        pattern: Float[Tensor, "head row pos"],
        visible: Bool[Tensor, "row pos"],
        call: Call | None = None,
    ) -> AttentionRows:
        """Get the rows of a pattern; a query below the floor, or without a choice, is left out."""
        mass = pattern * visible
        weight = mass.sum(-1)
        counted = (weight >= FLOOR) & (visible.sum(-1) > 1)
        return cls(mass * counted[..., None], visible, weight * counted, 1 - weight, call)

    @classmethod
    def read(
        cls, call: Call, rows: Int[Tensor, " row"], sink: Bool[Tensor, " pos"]
    ) -> AttentionRows:
        """Return some rows of an attention call on one window."""
        at = rows.to(call.z.device)
        seen = call.visible(at)[0].any(0).cpu() & ~sink
        return cls.of(call.pattern(at)[0].detach().float().cpu(), seen, call)


def sink_of(window: TextWindow, special: Iterable[int]) -> Bool[Tensor, " pos"]:
    """Return the keys that are the sink: the first token and every special token."""
    sink = torch.as_tensor(np.isin(window.ids, sorted(special)))
    sink[0] = True
    return sink


def described_sites(model: Model) -> list[Site]:
    """Return the attentions whose rows are described: distributions within one sequence of text."""
    stacks = ("decoder", "encoder")
    sites = [s for s in model.sites if s.distributes and s.stack in stacks]
    if not model.takes_text or not sites:
        raise OptionError(
            f"{model.name} has no attention within a sequence of tokens whose rows are "
            "distributions, so its heads cannot be described on text"
        )
    if model.ranks is not None:
        model.ranks.require_whole(model.name)
    return sites


def read_rows(
    model: Model,
    window: TextWindow,
    special: Sequence[int],
    visit: Callable[[Site, AttentionRows], None],
    sites: Sequence[Site],
) -> None:
    """Run the model on one window and pass the sampled rows of every site to `visit`.

    Only the rows of the window's queries are computed. A window runs alone, so that padding never
    enters. The sink is the first token and every special token.
    """
    sink = sink_of(window, special)
    rows = torch.as_tensor(window.queries)
    wanted = set(sites)

    def take(site: Site, call: Call, real: Tensor) -> None:
        if site not in wanted:
            return
        model.require_finite(call, site)
        visit(site, AttentionRows.read(call, rows, sink))

    model.read(Prompts((window.ids,)), take, last=1, streamed=True)
