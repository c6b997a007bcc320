"""Checks of the fields of a reduction, when it is made and when it meets an attention call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from numbers import Integral
from typing import TYPE_CHECKING, Any

from interp_kernels.errors import InvalidReduction

if TYPE_CHECKING:
    from torch import Tensor


def _is_dense(x: object) -> bool:
    from interp_kernels.checks import check_dense  # imports torch

    check_dense("it", x)
    return True


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda x: isinstance(x, str), "a text"),
    "int": (lambda x: isinstance(x, Integral), "a whole number"),
    "tuple": (
        lambda x: isinstance(x, Sequence) and all(isinstance(i, Integral) for i in x),
        "a tuple of whole numbers",
    ),
    "Callable": (callable, "a function"),
    "KeyRuns": (lambda x: hasattr(x, "prompts"), "the runs of a predicate"),
    "Int": (_is_dense, "a tensor"),
    "Float": (_is_dense, "a tensor"),
}
"""By the first word of a field's annotation: whether a value fits, and what does."""


def check_fields(reduction: Any) -> None:
    """Raise if a field of a reduction is of another type than its annotation names."""
    for each in fields(reduction):
        value, kind = getattr(reduction, each.name), str(each.type).removesuffix(" | None")
        if kind == each.type or value is not None:
            fits, words = _KINDS[re.split(r"\W", kind)[0]]
            require(fits(value), f"{each.name}={value!r:.60}; expected {words}")


def require(fits: bool, what: str) -> None:
    """Raise with what does not fit, and what would."""
    if not fits:
        raise InvalidReduction(what)


def check_labels(name: str, labels: Tensor, size: int, batch: int, axis: str) -> None:
    """Raise unless labels are whole numbers, one per position of an axis."""
    whole = not labels.is_floating_point() and not labels.is_complex()
    require(
        whole and labels.ndim == 2 and labels.shape[0] in (1, batch) and labels.shape[1] == size,
        f"{name}: labels are {labels.dtype} {list(labels.shape)}; expected whole numbers "
        f"[{batch} or 1, {size}], one per {axis}, -1 for none",
    )
