"""Other attention outputs in a run that is otherwise unchanged: what differs depends on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from interp.core.interrupts import holding
from interp.model.calls.call import Call
from interp.model.calls.nest import first_tensor, with_tensor
from interp.model.hooks.inference import in_this_thread
from interp.model.hooks.tap import tapped
from interp.model.locate.find_sites import Event


@holding
@contextmanager
def other_outputs(model: nn.Module, events: Sequence[Event]) -> Iterator[None]:
    """Add noise to the output of each attention in the block, and undo it after its module.

    The modules return what they returned in the recorded run, so inside each of them exactly the
    tensors that follow from its own attention differ.
    """
    generator = torch.Generator().manual_seed(0)
    returned = {(e.name, e.run): e.returned for e in events if e.call is None}
    runs: Counter[str] = Counter()

    def add(module: nn.Module, run: int, call: Call) -> None:
        noise = torch.randn(call.z.shape, generator=generator).to(call.z)
        call.z = call.z + noise * call.z.abs().mean()

    def undo(name: str) -> Any:
        def hook(module: nn.Module, args: tuple, output: Any) -> Any:
            old, new = first_tensor(output), returned.get((name, runs[name]))
            runs[name] += 1
            if old is None or new is None or new.shape != old.shape:
                return output
            return with_tensor(output, old, new)

        return in_this_thread(hook)

    handles = [
        model.get_submodule(name).register_forward_hook(undo(name))
        for name in dict.fromkeys(e.name for e in events if e.call is not None)
    ]
    try:
        with tapped(model, add, watch=True):
            yield
    finally:
        for handle in handles:
            handle.remove()
