"""A device without hardware: its tensors are computed on the CPU, and do not mix with others.

Made with torch's Python backend for PrivateUse1, which is experimental. What fails on a GPU fails
here: tensors of two devices in one operation, a generator of another device, numpy on a tensor of
the device, and float64 if the device lacks it, as `mps` does. Copies to the CPU are counted.

Not covered: kernels of the device itself (Triton's are tested through its interpreter), autocast,
streams and asynchronous errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "stand_in"
# Operations that take tensors of two devices: copies, and what a GPU computes on either side.
COPIES = {"aten::copy_", "aten::_to_copy", "aten::_copy_from", "aten::lift_fresh"}
INDEXED = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}
READ = {"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"}


class Limits:
    """Limits of the device, and the copies to the CPU that it saw."""

    def __init__(self) -> None:
        self.float64 = True
        self.copies: Counter[str] = Counter()


LIMITS = Limits()


class Held(torch.Tensor):
    """Tensor of the device, around one of the CPU."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor, index: int = 0) -> Held:
        if inner.dtype in (torch.float64, torch.complex128) and not LIMITS.float64:
            raise TypeError(f"Cannot convert to {inner.dtype}: {NAME} does not support float64")
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=torch.device(NAME, index),
            requires_grad=False,
        )
        made.inner = inner.detach()
        return made

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def tolist(self) -> Any:
        LIMITS.copies["tolist"] += 1
        return self.inner.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"can't convert {NAME} device type tensor to numpy; use Tensor.cpu()")

    __array__ = numpy

    def __repr__(self, **_: Any) -> str:
        return f"Held({self.inner})"

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        copied = Held(self.inner.clone(), self.device.index)
        made: torch.Tensor = copied.requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            made = torch.nn.Parameter(copied, requires_grad=self.requires_grad)
        memo[id(self)] = made
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


def _plain(x: Any) -> Any:
    return x.inner if isinstance(x, Held) else x


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the CPU; its results are of the device if its tensors are."""
    name = func._schema.name
    leaves = tree_leaves((args, kwargs))
    held = {id(x.inner): x for x in leaves if isinstance(x, Held)}
    others = [x for x in leaves if isinstance(x, torch.Tensor) and not isinstance(x, Held)]
    by_index = name in INDEXED and isinstance(args[0], Held)
    if held and name not in COPIES and not by_index and any(x.dim() for x in others):
        raise RuntimeError(f"Expected all tensors on the same device, in {name}: {NAME} and cpu")
    indices = {x.device.index for x in held.values() if x.dim()}
    if len(indices) > 1 and name not in COPIES:
        raise RuntimeError(f"Expected all tensors on the same device, in {name}: {NAME} {indices}")
    index = min(indices, default=0)
    if held and any(isinstance(x, torch.Generator) and x.device.type != NAME for x in leaves):
        raise RuntimeError(f"Expected a {NAME!r} device type for generator, in {name}")
    on_device = bool(held)
    if kwargs.get("device") is not None:
        on_device = torch.device(kwargs["device"]).type == NAME
        index = torch.device(kwargs["device"]).index or 0
        kwargs = {**kwargs, "device": "cpu"}
        if held and not on_device:
            LIMITS.copies[name] += 1
    if name in READ:
        LIMITS.copies[name] += 1
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    found = func(*tree_map(_plain, args), **tree_map(_plain, kwargs))
    if name == "aten::copy_":
        if held and not isinstance(args[0], Held):
            LIMITS.copies[name] += 1
        return args[0]
    if not on_device:
        return found
    return tree_map(lambda x: _held(x, held, index), found)


def _held(x: Any, held: dict[int, Held], index: int) -> Any:
    """Return a result as a tensor of the device; the same one if it was given, as in place."""
    if not isinstance(x, torch.Tensor):
        return x
    return held[id(x)] if id(x) in held else Held(x, index)


def _made_on_device(made: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def make(*args: Any, **kwargs: Any) -> torch.Tensor:
        ignored = ("device", "pin_memory", "layout", "memory_format")
        given = {k: v for k, v in kwargs.items() if k not in ignored}
        index = torch.device(kwargs.get("device") or NAME).index or 0
        return Held(made(*args, device="cpu", **given), index)

    return make


_MADE = (
    "arange",
    "arange.start",
    "arange.start_step",
    "empty_strided",
    "empty.memory_format",
    "eye",
    "eye.m",
    "linspace",
    "logspace",
    "randperm",
    "tril_indices",
    "triu_indices",
)
_KEPT: list[torch.library.Library] = []


def install() -> torch.device:
    """Register the device in this process, which is not possible to undo, and return it."""
    if not _KEPT:
        _setup_privateuseone_for_python_backend(NAME)
        library = torch.library.Library("aten", "IMPL")
        for each in _MADE:
            packet, _, overload = each.partition(".")
            made = getattr(getattr(torch.ops.aten, packet), overload or "default")
            library.impl(each, _made_on_device(made), "PrivateUse1")
        library.impl("_copy_from", _copy_from, "PrivateUse1")
        _device_constructors()  # remembers what a device context changes, before that is replaced
        for name in ("tensor", "as_tensor", "asarray"):
            setattr(torch, name, _from_python(getattr(torch, name)))
        _KEPT.append(library)
    return torch.device(NAME, 0)


def _copy_from(source: torch.Tensor, to: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _plain(to).copy_(_plain(source))
    return to


def _from_python(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Make a tensor of Python data on the CPU, then move it: torch does so before it dispatches."""

    def made(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        if device is None or torch.device(device).type != NAME:
            return make(*args, device=device, **kwargs)
        return make(*args, **kwargs).to(torch.device(device))

    return made


@contextmanager
def without_float64() -> Iterator[None]:
    """Let the device refuse float64, as `mps` does."""
    LIMITS.float64 = False
    try:
        yield
    finally:
        LIMITS.float64 = True


@contextmanager
def counted_copies() -> Iterator[Counter[str]]:
    """Count the copies to the CPU, and the numbers read from tensors."""
    before = LIMITS.copies
    LIMITS.copies = Counter()
    try:
        yield LIMITS.copies
    finally:
        LIMITS.copies = before
