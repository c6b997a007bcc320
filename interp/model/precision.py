"""Float64 on devices that have none, such as Apple's `mps`: float32 takes its place there.

interp sums in float64. Where a device cannot, asking it for float64 would be an error of torch; in
`float64_or_less`, float64 that is asked of such a device becomes float32, and a float64 tensor that
moves there is rounded. Tensors on the CPU keep float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

WITHOUT = {"mps"}
"""Types of devices that have no float64."""
_active: ContextVar[bool] = ContextVar("float64_or_less", default=False)
_P = ParamSpec("_P")
_T = TypeVar("_T")
_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def lacks_float64(device: torch.device) -> bool:
    """Return True if a device has no float64."""
    return device.type in WITHOUT


def why_inexact(dtype: torch.dtype, reason: str) -> str:
    """Why parts do not sum to what a model computed: a narrow type of its weights, else why."""
    if dtype not in (torch.float16, torch.bfloat16):
        return reason
    name = str(dtype).removeprefix("torch.")
    return f"{name} rounds every sum in the stream; load the model in float32 (--dtype float32)"


@contextmanager
def float64_or_less(device: torch.device) -> Iterator[None]:
    """In the block, compute in float32 on a device without float64 what asks for float64."""
    if not lacks_float64(device):
        yield
        return
    with _narrowed():
        yield


def carried(run: Callable[[], _T]) -> Callable[[], _T]:
    """Return a function that runs in another thread as it would in this one."""
    if not _active.get():
        return run

    def narrowed() -> _T:
        with _narrowed():
            return run()

    return narrowed


def on_its_device(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let a function of a model, or of several, run in `float64_or_less` on the model's device."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        given: list[Any] = [y for x in args for y in (x if isinstance(x, (list, tuple)) else [x])]
        devices = [x.device for x in given if isinstance(getattr(x, "device", None), torch.device)]
        lacking = next((device for device in devices if lacks_float64(device)), None)
        if lacking is None:
            return function(*args, **kwargs)
        with _narrowed():
            return function(*args, **kwargs)

    return call


@contextmanager
def _narrowed() -> Iterator[None]:
    token = _active.set(True)
    try:
        with _Narrowed():
            yield
    finally:
        _active.reset(token)


class _Narrowed(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        target = _target(args, kwargs)
        if target is None or not lacks_float64(target):
            return func(*_widened(func, args), **kwargs)
        if func is Tensor.double:
            return args[0].float()
        if func is Tensor.to or func is Tensor.copy_:
            args = tuple(_rounded(x) for x in args)
        return func(*map(_fitting, args), **{k: _fitting(x) for k, x in kwargs.items()})


def _fitting(x: Any) -> Any:
    """Return an argument for float32: its type, and no number so small that it would be 0."""
    if isinstance(x, torch.dtype):
        return _NARROW.get(x, x)
    tiny = torch.finfo(torch.float32).tiny
    return tiny if isinstance(x, float) and 0 < x < tiny else x


_PRODUCTS = {
    "__matmul__",
    "bmm",
    "dot",
    "einsum",
    "index_add_",
    "linear",
    "matmul",
    "mm",
    "mv",
    "scatter_add_",
}


def _widened(func: Any, args: Any) -> Any:
    """Return arguments on the CPU in one type where torch does not promote: beside float64."""
    name = getattr(func, "__name__", "")
    if name != "__setitem__" and name not in _PRODUCTS:
        return args
    tensors = list(_tensors(args))
    if name == "__setitem__":
        tensors = tensors[:1]
    if not any(x.dtype == torch.float64 for x in tensors):
        return args
    return tuple(_wide(x) for x in args)


def _wide(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return type(x)(map(_wide, x))
    narrow = isinstance(x, Tensor) and x.dtype == torch.float32 and x.device.type == "cpu"
    return x.double() if narrow else x


def _target(args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """Return the device of the result: the one that is named, or that of the first tensor."""
    named = kwargs.get("device")
    for x in args[1:]:
        text = isinstance(x, str) and x.partition(":")[0] in (*WITHOUT, "cpu", "cuda")
        if isinstance(x, torch.device) or text:
            named = x
    if named is not None:
        return torch.device(named)
    return next((x.device for x in _tensors(args)), None)


def _tensors(args: Any) -> Iterator[Tensor]:
    for x in args:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, (tuple, list)):
            yield from _tensors(x)


def _rounded(x: Any) -> Any:
    return x.to(_NARROW[x.dtype]) if isinstance(x, Tensor) and x.dtype in _NARROW else x
