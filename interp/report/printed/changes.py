"""Changes between two profiles as text: one sentence per changed head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.core.ties import ordered_by
from interp.profiles.changes import LEAST, LEVEL
from interp.report.printed.profile import text_block

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def changes_summary(found: ResultRows) -> str:
    """Return how many heads changed, and the sentences of those that changed most."""
    return changes_text([found], top=5).rstrip()


def changes_line(found: ResultRows) -> str:
    """Return how many heads changed, as the first line of a page."""
    return f"{found.provenance['model']}: {counted_changes(found).partition('. ')[0].rstrip('.')}"


def counted_changes(found: ResultRows) -> str:
    """Return how many heads changed and how that was tested, in two sentences."""
    n, heads = len(found.changes), found.n_heads
    how = "paired over documents" if found.paired else "unpaired: the profiles read other documents"
    text = (
        f"{n} of {heads} heads changed what they do by at least {LEAST:g} of their attention off "
        f"the sink (p below {LEVEL:g} by Holm's method over {_tested(found):,} tests; {how})."
    )
    if found.small:
        text += f" {found.small:,} further differences are significant and smaller."
    if found.only_one:
        text += f" {found.only_one} heads are in one of the profiles only."
    return text


def _tested(found: ResultRows) -> int:
    return sum(math.isfinite(p) for p in found.p)


def changes_text(results: Sequence[ResultRows], *, top: int = 8) -> str:
    """Format the sentences of the changed heads, the largest change first.

    Args:
        results: the comparisons.
        top: number of heads to print; 0 for all.
    """
    lines = []
    for result in results:
        lines += [f"{result.provenance['model']}", *text_block("", counted_changes(result)), ""]
        order = ordered_by(result.changes, lambda one: one["largest"])
        for one in order[: top or None]:
            lines += text_block(f"{one['name']}  ", one["sentence"])
        if top and len(order) > top:
            lines.append(f"  ({len(order) - top} further heads: --top 0)")
    return "\n".join([*lines, ""])
