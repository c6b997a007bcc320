"""The implementations, by name. A new one is one file and one line in BACKENDS."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, cast, get_args

from interp_kernels.errors import BackendUnavailable

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.problem import Attention, AttentionShape
    from interp_kernels.reductions import Chosen, Reduction, ScoreMoments

    Value = Tensor | Chosen | ScoreMoments

Mode = Literal["fused", "observer"]

# Modules, imported when asked for; "auto" takes the first that can do what is asked.
BACKENDS: dict[str, str] = {
    "triton": "interp_kernels.gpu",
    "cpu": "interp_kernels.cpu",
    "chunked": "interp_kernels.chunked",
    "reference": "interp_kernels.reference",
}


@dataclass(frozen=True, eq=False)
class Request:
    """What a backend is asked: checked already, so a backend only computes.

    `output` and `lse` are the model's own, given in observer mode; a backend may use the lse and
    must return the output as it is. `memory` is what the workspace may take, in bytes, if limited.
    """

    attention: Attention
    reductions: tuple[Reduction, ...]
    mode: Mode = "fused"
    block: int | None = None
    memory: int | None = None
    output: Tensor | None = None
    lse: Tensor | None = None


class Backend(Protocol):
    """What the module of a backend holds. Results: row statistics and products in the work dtype
    (float32; float64 for float64 inputs), keys and counts int64, Output in the dtype of v."""

    def missing(self) -> str | None:
        """What this machine lacks to run it (a package, a device); None when nothing."""
        ...

    def unsupported(self, attention: Attention, reductions: Sequence[Reduction]) -> str | None:
        """What of this call it cannot do (a device, an activation, a reduction); None when all."""
        ...

    def workspace(
        self, shape: AttentionShape, reductions: Sequence[Reduction], block: int | None
    ) -> int:
        """Bytes beside inputs and results, `block` queries at a time (None: its own choice)."""
        ...

    def run(self, request: Request) -> dict[str, Value]:
        """Every reduction by name."""
        ...


def load(name: str) -> Backend:
    """The backend of that name.

    Raises:
        BackendUnavailable: no such name, or this machine lacks what it needs.
    """
    if name not in BACKENDS:
        known = ", ".join(["auto", *BACKENDS])
        raise BackendUnavailable(f"backend {name!r} is not known; known: {known}")
    backend = cast(Backend, importlib.import_module(BACKENDS[name]))
    if (lacks := backend.missing()) is not None:
        raise BackendUnavailable(f"backend {name!r} cannot run here: {lacks}")
    return backend


def why_not(
    name: str, attention: Attention | None = None, reductions: Sequence[Reduction] = ()
) -> str | None:
    """Why a backend cannot do this, or None when it can."""
    try:
        backend = load(name)
    except BackendUnavailable as error:
        return str(error)
    if attention is not None and (reason := backend.unsupported(attention, reductions)):
        return f"backend {name!r} cannot do this: {reason}"
    return None


def choose(
    name: str, attention: Attention | None = None, reductions: Sequence[Reduction] = ()
) -> str:
    """The name itself, or the first able backend for "auto".

    Raises:
        BackendUnavailable: the backend asked for cannot do it; another is never taken instead.
    """
    if name == "auto":
        able = (n for n in BACKENDS if why_not(n, attention, reductions) is None)
        return next(n for n in able if n != "triton" or _on_gpu(attention))
    if (reason := why_not(name, attention, reductions)) is not None:
        raise BackendUnavailable(reason)
    return name


def _on_gpu(attention: Attention | None) -> bool:
    """Triton's interpreter takes CPU tensors too, but only for whoever asks for it by name."""
    return attention is not None and attention.q.device.type == "cuda"


def check_mode(mode: str) -> Mode:
    """The mode, if it is one."""
    if mode not in get_args(Mode):
        known = ", ".join(get_args(Mode))
        raise BackendUnavailable(f"mode {mode!r} is not known; known: {known}")
    return cast(Mode, mode)
