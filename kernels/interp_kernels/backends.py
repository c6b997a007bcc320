"""Backends by name; a new one is one file and one line in BACKENDS."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, cast, get_args

from interp_kernels.errors import BackendUnavailable

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.problem import Attention, AttentionShape
    from interp_kernels.reductions import Chosen, Reduction, ScoreMoments

    Value = Tensor | Chosen | ScoreMoments

Mode = Literal["fused", "observer"]

# Modules, imported on request; "auto" uses the first that supports the request.
BACKENDS: dict[str, str] = {
    "triton": "interp_kernels.gpu",
    "cpu": "interp_kernels.cpu",
    "chunked": "interp_kernels.chunked",
    "reference": "interp_kernels.reference",
}


@dataclass(frozen=True, eq=False)
class Request:
    """Validated request to a backend, which only has to compute.

    `output` and `lse` are the model's own, given in observer mode; a backend may use the lse and
    must return the output unchanged. `memory` is the limit of the workspace, in bytes, if there is
    one. A backend calls `going_on` every second or more often; what it raises ends the computation.
    """

    attention: Attention
    reductions: tuple[Reduction, ...]
    mode: Mode = "fused"
    block: int | None = None
    memory: int | None = None
    output: Tensor | None = None
    lse: Tensor | None = None
    going_on: Callable[[], None] = lambda: None


class Backend(Protocol):
    """Interface of the module of a backend.

    Results: row statistics and products in the work dtype (float32; float64 for float64 inputs),
    keys and counts int64, Output in the dtype of v.
    """

    def missing(self) -> str | None:
        """Name the missing requirement on this machine (package, device); None when complete."""
        ...

    def unsupported(self, attention: Attention, reductions: Sequence[Reduction]) -> str | None:
        """Name the unsupported part of a call (device, activation, reduction), or return None."""
        ...

    def workspace(
        self, shape: AttentionShape, reductions: Sequence[Reduction], block: int | None
    ) -> int:
        """Return bytes beside inputs and results, for `block` queries (None: its own choice)."""
        ...

    def run(self, request: Request) -> dict[str, Value]:
        """Compute every reduction, by name."""
        ...


def load(name: str) -> Backend:
    """Import the backend of a name.

    Raises:
        BackendUnavailable: there is no such name, or this machine lacks a requirement.
    """
    if not isinstance(name, str) or name not in BACKENDS:
        known = ", ".join(["auto", *BACKENDS])
        raise BackendUnavailable(f"backend {name!r} is not known; known: {known}")
    backend = cast(Backend, importlib.import_module(BACKENDS[name]))
    if (lacks := backend.missing()) is not None:
        raise BackendUnavailable(f"backend {name!r} cannot run here: {lacks}")
    return backend


def why_not(
    name: str, attention: Attention | None = None, reductions: Sequence[Reduction] = ()
) -> str | None:
    """Explain why a backend does not support a request, or return None."""
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
    """Return the name itself, or the first backend that supports the request for "auto".

    Raises:
        BackendUnavailable: the named backend does not support the request; it is never replaced.
    """
    if name == "auto":
        able = (n for n in BACKENDS if why_not(n, attention, reductions) is None)
        return next(n for n in able if n != "triton" or _trusted(attention))
    if (reason := why_not(name, attention, reductions)) is not None:
        raise BackendUnavailable(reason)
    return name


def _trusted(attention: Attention | None) -> bool:
    """Return True for CUDA tensors on a card on which the kernels passed their comparison.

    Triton's interpreter on the CPU must be requested by name.
    """
    if attention is None or attention.q.device.type != "cuda":
        return False
    from interp_kernels.verdicts import Width, why_untrusted

    why = why_untrusted(attention.q.device, Width.of(attention))
    if why is not None:
        warnings.warn(f"{why}; until then PyTorch computes in blocks, slower", stacklevel=2)
    return why is None


def check_mode(mode: str) -> Mode:
    """Return the mode if it is known, else raise."""
    if mode not in get_args(Mode):
        known = ", ".join(get_args(Mode))
        raise BackendUnavailable(f"mode {mode!r} is not known; known: {known}")
    return cast(Mode, mode)
