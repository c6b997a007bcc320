"""Sign convention of causal scores."""

from __future__ import annotations

HELPS = "(+ helps)"
"""Text after the unit of a signed score; `SIGN` states it in full."""
ALONE = "(+ better than the whole layer)"
"""Text after the unit of `all_but_one`."""
SIGN = "positive: the task goes better with the head than without it"


def sign_of(of: str, higher_is_better: bool, magnitude: bool = False) -> int:
    """Return the factor that turns a change of the task into a score positive for helpful heads."""
    return 1 if magnitude or (of == "presence") == higher_is_better else -1
