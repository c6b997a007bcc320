"""Calls by name, as the server and the notebook receive them, answered by one session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interp.core.errors import OptionError
from interp.report.explore.requests import ablation_of, fields, prompt_of
from interp.report.explore.session import Session

NO_MODEL = (
    "these results hold no model, so no prompt can be run; start `interp explore` with the model "
    "too, such as `interp explore results gpt2`"
)
_PATTERN = {"prompt": int, "head": str}
_TILE = _PATTERN | {"block": int, "row": int, "column": int}
TYPES: Mapping[str, tuple[Mapping[str, type], Mapping[str, type]]] = {
    "pattern": (_PATTERN, {"after": int}),
    "tile": (_TILE, {"turn": int}),
    "progress": ({}, {}),
    "rules": ({"prompt": int}, {}),
    "explain": (_PATTERN | {"query": int, "key": int}, {"after": int}),
    "heads": (_PATTERN | {"query": int, "key": int}, {"after": int}),
}
"""Needed and optional fields of the calls that are queries."""


def answer(session: Session | None, call: str, given: Any) -> dict[str, Any]:
    """Answer one call with data that can be written as JSON."""
    if session is None:
        raise OptionError(NO_MODEL)
    if call == "prompt":
        return session.prompt(prompt_of(given))
    if call == "ablate":
        return session.ablate(**ablation_of(given))
    if call == "write":
        return session.write(**ablation_of(given, at_position=False))
    if call not in TYPES:
        known = ", ".join(("prompt", "ablate", "write", *TYPES))
        raise OptionError(f"no call {str(call)[:60]!r}; known: {known}")
    return getattr(session, call)(**fields(given, *TYPES[call]))
