"""Position of this process among several that hold one model, each some heads of every layer.

Numbers per head are gathered, never patterns. Every process must make the same calls in the same
order, as under `torchrun`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from interp.core.errors import OptionError, UnreadableAttention
from interp.core.head import Head
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from interp.model.inputs import text_config


@dataclass(frozen=True)
class Ranks:
    """Position of this process among those that hold a model, and the sites spread over them."""

    rank: int
    size: int
    group: dist.ProcessGroup
    spread: frozenset[str]  # names of sites

    def first(self, site: Site) -> int:
        """Return the index of a site's first head in this process, counted over all processes."""
        return self.rank * site.n_heads if site.name in self.spread else 0

    def whole_site(self, site: Site) -> Site:
        """Return the site with the heads of all processes."""
        if site.name not in self.spread:
            return site
        return replace(
            site, n_heads=site.n_heads * self.size, n_kv_heads=site.n_kv_heads * self.size
        )

    def gather(self, values: Tensor, site: Site) -> Tensor:
        """Gather `[prompt, head]` of this process's heads to all heads, on every process."""
        if site.name not in self.spread:
            return values
        parts = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(parts, values.contiguous(), group=self.group)
        return torch.cat(parts, 1)

    def total(self, values: Tensor, site: Site) -> Tensor:
        """Sum over processes."""
        if site.name in self.spread:
            values = values.contiguous()
            dist.all_reduce(values, group=self.group)
        return values

    def mine(self, x: Tensor, site: Site) -> Tensor:
        """Select this process's heads from a tensor whose first axis counts all heads."""
        first = self.first(site)
        return x[first : first + site.n_heads]

    def local_gates(
        self, gates: Mapping[Site, Tensor], sites: Sequence[Site]
    ) -> dict[Site, Tensor]:
        """Select this process's heads from gates `[row, head]` of all heads."""
        local = {self.whole_site(site): site for site in sites}
        return {
            local[site]: gate[:, self.first(local[site]) :][:, : local[site].n_heads]
            for site, gate in gates.items()
        }

    def require_whole(self, name: str) -> None:
        """Raise OptionError if this process has only some heads, in what reads activations."""
        if self.spread:
            raise OptionError(
                f"{name} is spread over {self.size} processes, each with some heads of every "
                "layer; numbers per head are gathered (interp.score), activations are not"
            )

    def local(self, edits: Sequence[Edit], sites: Sequence[Site]) -> list[Edit]:
        """Translate edits of heads counted over all processes to this process's heads."""
        local_edits = []
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
                local_edits.append(replace(edit, heads=tuple(dict.fromkeys(heads))))
        return local_edits


def ranks_of(module: nn.Module, sites: Sequence[Site]) -> Ranks | None:
    """Return how a model is spread over processes, or None for a single process."""
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
                f"{mesh.size()} processes: which ones these are cannot be determined"
            )
        spread.add(site.name)
    return Ranks(mesh.get_local_rank(), mesh.size(), mesh.get_group(), frozenset(spread))
