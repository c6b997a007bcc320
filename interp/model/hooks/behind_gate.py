"""Visits of gated attentions just before their output projection, where z is its input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from interp.model.calls.call import Call, first_tensor, with_tensor
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread

Visit = Callable[[Site, Call, Bool[Tensor, "batch query_pos"]], None]
Stage = Literal["z", "mix", "both"]
"""Where a visitor sees a layer with a gate or norm before its output projection: just before the
projection, where z is its input; before the gate, where z is pattern times values; or at both."""


class AtProjection:
    """Calls of gated attentions that wait for the input of their output projection."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.waiting: dict[str, list[tuple[Site, Call, Tensor]]] = defaultdict(list)

    def wait(self, site: Site, call: Call, real: Tensor) -> None:
        """Visit a call when its projection is about to run."""
        self.waiting[str(site.projection)].append((site, call, real))

    def hooks(self, module: nn.Module, sites: Iterable[Site]) -> list[RemovableHandle]:
        """Set hooks on the projections of sites."""
        names = dict.fromkeys(str(site.projection) for site in sites if site.gated)
        return [
            module.get_submodule(name).register_forward_pre_hook(self._hook(name), with_kwargs=True)
            for name in names
        ]

    def _hook(self, name: str) -> Callable[..., Any]:
        def hook(_: nn.Module, args: tuple, kwargs: dict) -> Any:
            x = first_tensor(args)
            x = first_tensor(kwargs) if x is None else x
            if x is None or not self.waiting[name]:
                return None
            site, call, real = self.waiting[name].pop(0)
            batch, heads, queries, width = call.z.shape
            rows = x.reshape(batch, -1, heads, width)  # Longformer fills its last band
            call = copy(call)
            call.behind_gate = True
            call.z = z = rows[:, :queries].transpose(1, 2)
            self.visit(site, call, real)
            if call.z is z:
                return None
            new = torch.cat([call.z.to(x).transpose(1, 2), rows[:, queries:]], 1).reshape(x.shape)
            return with_tensor(args, x, new), with_tensor(kwargs, x, new)

        return in_this_thread(hook)
