"""Names of the ways of quantising weights, without torch."""

from __future__ import annotations

from interp.core.errors import UnknownName

METHODS = ("int16", "int8", "int4", "fp8")
LIBRARIES = {"torchao": ("int8", "fp8"), "bitsandbytes": ("int8", "nf4", "fp4")}
KNOWN = (*METHODS, *(f"{name}:{kind}" for name, kinds in LIBRARIES.items() for kind in kinds))


def require_rounding(method: str) -> None:
    """Raise UnknownName for a way of quantising that does not exist."""
    if method not in KNOWN:
        raise UnknownName("way of quantising", method, KNOWN)
