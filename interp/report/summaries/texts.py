"""Text of results on texts and their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def topic_products(found: ResultRows) -> str:
    """Return the difference between pairs of words of the same topic and of two."""
    said = [
        f"(same minus other topic {row['score']:+.3g} standard deviations [{row['low']:.3g}, "
        f"{row['high']:.3g}], shuffled {row['null']:+.3g})"
        for row in found
        if row["part"] == "difference"
    ]
    return "TopicProducts" + "".join(said)
