"""Causal checks of scores as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.heads.causal_check.result import Confirmation


def confirmation_text(results: Sequence[Confirmation]) -> str:
    """Format the heads of each score, then the result of each task."""
    [confirmed] = results
    lines = [confirmed.checks[0].model]
    seen, last = None, {check.metric: check for check in confirmed}
    for check in confirmed:
        if check.metric != seen:
            lines.append(f"  {check.metric}: {', '.join(check.heads)}")
        seen = check.metric
        first, *rest = [*check.parts(), *check.doubts()]
        lines.append(f"    {check.purpose:<8}  {first}")
        lines += [f"              {line}" for line in rest]
        if check is last[check.metric]:
            lines.append(f"    {confirmed.conclusions[check.metric].sentence}")
    lines += [
        f"  {m}: {confirmed.conclusions[m].sentence}" for m in confirmed.notes if m not in last
    ]
    return "\n".join([*lines, ""])
