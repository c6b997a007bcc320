"""A model spread over several processes: each holds some heads of every layer and reduces them.

Numbers per head are gathered, never patterns. Every process must make the same calls in the same
order, as `torchrun` makes it do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from interp.core.errors import UnreadableAttention
from interp.core.head import Head
from interp.model.edits import Edit
from interp.model.inputs import text_config
from interp.model.locate.sites import Site


@dataclass(frozen=True)
class Ranks:
    """This process among those that hold a model, and which sites' heads are spread over them."""

    rank: int
    size: int
    group: dist.ProcessGroup
    spread: frozenset[str]  # names of sites

    def first(self, site: Site) -> int:
        """The number of a site's first head here, counted over all processes."""
        return self.rank * site.n_heads if site.name in self.spread else 0

    def whole_site(self, site: Site) -> Site:
        """The site with the heads of all processes."""
        if site.name not in self.spread:
            return site
        return replace(
            site, n_heads=site.n_heads * self.size, n_kv_heads=site.n_kv_heads * self.size
        )

    def gather(self, values: Tensor, site: Site) -> Tensor:
        """`[prompt, head]` of this process's heads -> of all heads, on every process."""
        if site.name not in self.spread:
            return values
        parts = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(parts, values.contiguous(), group=self.group)
        return torch.cat(parts, 1)

    def total(self, values: Tensor, site: Site) -> Tensor:
        """The sum over processes."""
        if site.name in self.spread:
            values = values.contiguous()
            dist.all_reduce(values, group=self.group)
        return values

    def mine(self, x: Tensor, site: Site) -> Tensor:
        """Of a tensor with an axis of all heads first, those of this process."""
        first = self.first(site)
        return x[first : first + site.n_heads]

    def why_not_captured(self, name: str) -> str:
        """One line on what is gathered and what is not."""
        return (
            f"{name} is spread over {self.size} processes, each with some heads of every layer; "
            "numbers per head are gathered (interp.score), activations are not"
        )

    def local(self, edits: Sequence[Edit], sites: Sequence[Site]) -> list[Edit]:
        """Edits of heads counted over all processes as edits of this process's heads."""
        found = []
        for edit in edits:
            heads = []
            for site in sites:
                if edit.stack not in (None, site.stack):
                    continue
                heads += [
                    Head(site.layer, at)
                    for at in (h - self.first(site) for h in edit.applies(site))
                    if 0 <= at < site.n_heads
                ]
            if heads:
                found.append(replace(edit, heads=tuple(dict.fromkeys(heads))))
        return found


def whole_parameter(x: Tensor) -> Tensor:
    """A parameter with the parts of all processes."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def ranks_of(module: nn.Module, sites: Sequence[Site]) -> Ranks | None:
    """How a model is spread, or None where all of it is here.

    Raises:
        UnreadableAttention: heads of which it cannot be told which process holds them.
    """
    parts = [p for p in module.parameters() if isinstance(p, DTensor)]
    mesh = parts[0].device_mesh if parts else None
    if mesh is None or mesh.size() == 1:
        return None
    if mesh.ndim > 1:
        raise UnreadableAttention(
            f"the model is spread over a mesh of {mesh.ndim} axes; use tensor parallelism alone"
        )
    config, spread = text_config(module.config), set()
    total = int(getattr(config, "num_attention_heads", 0) or getattr(config, "n_head", 0))
    for site in sites:
        if site.n_heads == total:
            continue
        if site.n_heads * mesh.size() != total:
            raise UnreadableAttention(
                f"{site.module} has {site.n_heads} heads here, and {total} in all over "
                f"{mesh.size()} processes: it cannot be told which these are"
            )
        spread.add(site.name)
    return Ranks(mesh.get_local_rank(), mesh.size(), mesh.get_group(), frozenset(spread))
