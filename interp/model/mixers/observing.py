"""Report of every forward of a mixer as a call, between its heads and its output projection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import Call
from interp.model.calls.map_call import MapCall
from interp.model.mixers.mixer import Forward, Mixer, arguments_of


def _read(mixer: Mixer, module: nn.Module, forward: Forward) -> MapCall:
    """Return the call of one forward, once all its parts have been seen to run."""
    missing = [name for name in mixer.watched if name not in forward.returned]
    if missing:
        raise UnreadableAttention(
            f"{type(module).__name__} ran without its part {missing[0]}, as fused kernels do, so "
            "its map cannot be read; load the model without custom kernels and in eval mode"
        )
    return mixer.read(module, forward)


@contextmanager
def observing(
    model: nn.Module,
    mixers: Mapping[nn.Module, Mixer],
    forwards: dict[nn.Module, Forward],
    show: Callable[[nn.Module, Call], None],
    active: Callable[[nn.Module], bool],
) -> Iterator[None]:
    """Pass to `show` each forward of a mixer in the block, just before its output projection.

    If `show` assigns the call's z, the projection receives the input that this z gives.
    """
    handles = []

    def enter(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if active(module):
            given = arguments_of(module, args, kwargs)
            mixers[module].enter(module, given)
            forwards[module] = Forward(given)

    def leave(module: nn.Module, args: object, output: object) -> None:
        if active(module):
            forwards.pop(module, None)

    def watched(module: nn.Module, name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple, output: Any) -> None:
            if active(module) and module in forwards:
                forwards[module].given[name] = args
                forwards[module].returned[name] = output

        return hook

    def before(module: nn.Module) -> Callable[..., Any]:
        def hook(_: nn.Module, args: tuple) -> Any:
            if not active(module) or module not in forwards:
                return None
            call = _read(mixers[module], module, forwards[module])
            z = call.z
            show(module, call)
            if call.z is z:
                return None
            given: Tensor = args[0]
            return (call.to_projection(call.z).to(given.dtype).reshape(given.shape), *args[1:])

        return hook

    def guard(mixer: Mixer, one: nn.Module) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            if active(one):
                mixer.guard(module, arguments_of(module, args, kwargs))

        return hook

    try:
        guards = {name: (m, one) for one, m in mixers.items() for name in m.guarded}
        for module in model.modules() if guards else ():
            if type(module).__name__ in guards:
                check = guard(*guards[type(module).__name__])
                handles.append(module.register_forward_pre_hook(check, with_kwargs=True))
        for module, mixer in mixers.items():
            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True, prepend=True))
            handles.append(module.register_forward_hook(leave, always_call=True))
            for name in (*mixer.watched, *mixer.noticed):
                part = module.get_submodule(name)
                handles.append(part.register_forward_hook(watched(module, name), prepend=True))
            part = module.get_submodule(mixer.projection)
            # first of all hooks, so that others see the edited input
            handles.append(part.register_forward_pre_hook(before(module), prepend=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
