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


def direction_search_summary(found: ResultRows) -> str:
    """Return what the model declines, what each filter stops, and the direction chosen."""
    from interp.safety.selection import stopped

    lines = [
        f"declined: {found.refused[0]:.0%} of harmful, {found.refused[1]:.0%} of harmless",
        f"prompts: {', '.join(f'{n} {what}' for what, n in found.used.items())}",
        f"refusal log odds: harmful {found.clean[0]:+.3g}, harmless {found.clean[1]:+.3g}",
        f"filters: of {len(found)} candidates {stopped(found)}",
    ]
    best = next((row for row in found if row["chosen"]), None)
    if best is None:
        return "\n".join([*lines, "chosen: none passes"])
    lines.append(
        f"chosen: layer {best['layer']}, position {best['position']}: removed, harmful "
        f"{best['ablated']:+.3g}; added, harmless {best['added']:+.3g}; KL on harmless "
        f"{best['kl']:.3g}"
    )
    return "\n".join(lines)
