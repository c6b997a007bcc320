"""Printed form of results, by their presenters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from interp.core.presenter import form_of, resolved


def printed(results: Sequence[Any], model: str = "", by: str = "", /, **options: Any) -> str:
    """Format results, those of one type together."""
    parts = []
    for target, group in groupby(results, lambda one: by or form_of("text", one)):
        if target is None:
            parts += [f"{model}\n{one}\n" if model else repr(one) for one in group]
            continue
        function = resolved(target)
        known = function.__kwdefaults__ or {}
        parts.append(function([*group], **{k: v for k, v in options.items() if k in known}))
    return "".join(parts)


def nothing(results: Sequence[Any]) -> str:
    """Return no text, for a command that printed its results step by step."""
    return ""


def result_rows(result: Any, model: str) -> Any:
    """Return the rows of a result as a frame."""
    form = form_of("rows", result) or ("to_pandas" if hasattr(result, "to_pandas") else "copy")
    named = isinstance(form, str) and ":" not in form
    return getattr(result, form)() if named else resolved(form)(result, model)
