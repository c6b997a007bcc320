"""Text of results on refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def sahara_summary(found: ResultRows) -> str:
    """Return the heads that the search took, with the angle after each."""
    at = [found.labels.index(head) for head in found.taken]
    angles = [float(found.angles[step, i]) for step, i in enumerate(at)]
    path = ", ".join(f"{head} {x:.3g}°" for head, x in zip(found.taken, angles, strict=True))
    return f"Sahara ({found.form}): {path}; singular values {found.gap:.3g} apart"
