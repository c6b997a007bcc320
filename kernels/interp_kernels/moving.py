"""Calls, reductions and results on another device."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch

from interp_kernels.reductions import Chosen, ScoreMoments


def moved(thing: Any, device: torch.device | str) -> Any:
    """Return a call, a reduction or a result with its tensors on a device."""
    if isinstance(thing, torch.Tensor):
        return thing.to(device)
    if isinstance(thing, Chosen | ScoreMoments):
        return type(thing)(*(x.to(device) for x in thing))
    here = {f.name: getattr(thing, f.name) for f in fields(thing)}
    there = {n: x.to(device) for n, x in here.items() if isinstance(x, torch.Tensor)}
    return replace(thing, **there) if there else thing
