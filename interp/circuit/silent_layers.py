"""Does an MLP read its own layer's attention? Asked by a push where the attention wrote nothing.

The stream between attention and MLP is found by value: as a tensor that has the attention's output
added. Compiled models have layers whose attention writes nothing on most inputs; then the stream
between looks like the one before, and nothing tells such a block from one whose attention and MLP
run side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from interp.causal.patching import leaves, rebuilt
from interp.model.inference import inference
from interp.model.probe import probe_run
from interp.model.sites import first_tensor

if TYPE_CHECKING:
    from torch import Tensor

    from interp.model.model import Model
    from interp.model.sites import Site


def middle_of(model: Model, site: Site, block: str) -> str | None:
    """The module whose input is the stream that the MLP reads; None where it reads another."""
    mid = site.streams.get("resid_mid")
    if mid is not None:
        return mid.module
    module = model.module
    before, attention = _given(model, block, site.streams["attn_out"].module)
    push = torch.randn(before[block].shape, generator=torch.Generator().manual_seed(0))
    push = push.to(before[block])

    def pushed(_: Any, args: tuple, output: Any) -> Any:
        x = first_tensor(output)
        assert x is not None
        new = x + push.reshape(x.shape)
        return rebuilt(output, iter([new if y is x else y for y in leaves(output)]))

    handle = module.get_submodule(site.streams["attn_out"].module).register_forward_hook(pushed)
    try:
        after, _ = _given(model, block, site.streams["attn_out"].module)
    finally:
        handle.remove()
    scale = site.streams["attn_out"].scale
    middle = before[block] + scale * attention.reshape(push.shape)
    found = [
        name
        for name, x in after.items()
        if name in before
        and x.numel() == push.numel()
        and torch.allclose(before[name].reshape(push.shape), middle, atol=1e-4)
        and torch.allclose(x - before[name], scale * push.reshape(x.shape), atol=1e-4)
    ]
    return min(found, key=len, default=None)


def _given(model: Model, block: str, attention: str) -> tuple[dict[str, Tensor], Tensor]:
    """What the modules of a block are given in a run on the probe's tokens, and its attention."""
    with torch.no_grad(), inference(model.module):
        _, events = probe_run(model.module)
    given = {
        e.name: e.given
        for e in events
        if e.given is not None and (e.name == block or e.name.startswith(f"{block}."))
    }
    returned = next(e.returned for e in events if e.name == attention and e.returned is not None)
    return given, returned
