"""Text of results on dictionaries of features."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def feature_effects(found: ResultRows) -> str:
    """Return the task as it is and the largest changes without a feature."""
    lines = [
        f"{len(found)} features, {found.task}: {found.unchanged:.4g} {found.unit} as it is; "
        "largest changes without one:"
    ]
    for x in found.top(min(8, len(found))).to_pandas().to_dict("records"):
        lines.append(f"  F{x['feature']}: {x['score']:+.4g} [{x['low']:+.4g}, "
                     f"{x['high']:+.4g}], random direction {x['null']:+.4g}")  # fmt: skip
    return "\n".join(lines)
