"""Checks of how heads are read, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.model.self_check import SelfCheck


def check_text(results: Sequence[SelfCheck]) -> str:
    """Format a check: a line per layer, then the largest error and the modules not read."""
    [found] = results
    names = [f"{s.site.name}{' with a picture' if s.picture else ''}" for s in found.sites]
    width = max(map(len, names))
    lines = [f"  {'':<{width}}  pattern·v = z  heads = output"]
    for name, s in zip(names, found.sites, strict=True):
        result = "-" if s.result_error is None else f"{s.result_error:.1e}"
        verdict = "ok" if s.passed(found.tolerance) else f"FAILS in {s.site.module}"
        note = f" ({s.note})" if s.note else ""
        lines.append(f"  {name:<{width}}  {s.pattern_error:>13.1e}  {result:>14}  {verdict}{note}")
    largest = max(max(s.pattern_error, s.result_error or 0.0) for s in found.sites)
    verdict = "passed" if found.passed else "FAILED: its scores would not describe this model"
    lines.append(f"  {verdict}; largest error {largest:.1e}, allowed {found.tolerance:.0e}")
    if found.unread:
        lines.append(f"  not read (no softmax attention seen there): {', '.join(found.unread)}")
    if found.unread_why:
        lines.append(f"  towers not read: {found.unread_why}")
    if found.unused:
        from interp.model.surplus import described

        lines.append(f"  {described(found.unused)}")
    return "\n".join(lines)
