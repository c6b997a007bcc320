"""Bytes of key-value caches, counted from the sizes of the heads and the data type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from interp.cache.windows import KVHead, Window, cached_sites, kv_heads
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.model.calls.call import Call
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}


def token_bytes(model: Model) -> dict[KVHead, int]:
    """Return the bytes of one token in the cache of each head: a key and a value."""
    size = model.dtype.itemsize
    sizes = {(s.stack, s.layer): (s.d_head + s.d_v) * size for s in cached_sites(model)}
    return {head: sizes[head.stack, head.layer] for head in kv_heads(model)}


def cache_bytes(each: int, length: int, window: Window | None, reach: int | None = None) -> int:
    """Return the bytes of one head's cache after `length` tokens."""
    full = length if reach is None else min(length, reach)
    return each * (full if window is None else min(full, window.tokens))


def own_reach(model: Model, prompts: Prompts) -> dict[tuple[str, int], int]:
    """Return the sliding window of each layer that has one, measured on the longest prompt."""
    longest = max(prompts.ids, key=len)
    reach: dict[tuple[str, int], int] = {}

    def visit(site: Site, call: Call, real: torch.Tensor) -> None:
        if site.causal:
            last = torch.tensor([call.z.shape[2] - 1], device=call.z.device)
            seen = int(call.visible(last).sum(-1).max())
            if seen < call.z.shape[2]:
                reach[site.stack, site.layer] = seen

    model.read(Prompts((longest,)), visit, last=1)
    return reach


def read_bytes_of(text: str | float, full: int) -> int:
    """Return a number of bytes from a number, a text such as "64KiB", or a share such as "40%"."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([a-z]*|%)\s*", str(text).lower())
    if match is None or (match[2] != "%" and match[2] not in UNITS) or float(match[1]) <= 0:
        raise OptionError(
            f"budget={text!r} is not a size; give bytes, a size such as 64KiB or 1.5MB, or a share "
            "of the full cache such as 40%"
        )
    number = float(match[1])
    if match[2] == "%":
        return int(number / 100 * full)
    if number < 1 and not match[2]:
        return int(number * full)
    return int(number * UNITS[match[2]])


def spelled(size: float) -> str:
    """Return bytes in a readable unit, such as 1.5 KiB."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size:.0f} bytes"
