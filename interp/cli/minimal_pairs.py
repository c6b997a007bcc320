"""Minimal pairs of `interp study trees --pairs`: effect of ablating heads that follow relations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interp.core.head import Head

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.syntax.pairs import MinimalPair, PairCheck
    from interp.syntax.result import TreeScores


def checked_pairs(
    model: Model,
    found: TreeScores,
    pairs: Sequence[MinimalPair],
    heads: str | None,
    seed: int,
    progress: Any,
) -> PairCheck | str:
    """Check the requested heads, or those above their baselines; or return why none can be.

    Raises:
        InterpError: the model does not give likelihoods of sentences, or lacks the heads.
    """
    from interp.syntax.pairs import check_pairs
    from interp.syntax.wording import verdict

    if heads is not None:
        chosen = [Head.parse(head) for head in heads.split(",")]
    else:
        above = [r.head for r in found.relations if verdict(r) == "above"]
        chosen = sorted({Head.parse(head.split()[-1]) for head in above})
    if not chosen:
        return "minimal pairs: no head is above its baseline; name some with --heads"
    return check_pairs(model, pairs, chosen, seed=seed, progress=progress)


def minimal_pairs_text(found: PairCheck | str) -> str:
    """Format the result for a terminal."""
    if isinstance(found, str):
        return f"  {found}\n"
    lost, drawn = found.drop, found.random_drops
    n = len(found.margin)
    return (
        f"  minimal pairs ({found.kind}, {n} pairs): {found.accuracy:.1%} right, "
        f"{found.accuracy_without:.1%} without {' '.join(found.checked)}\n"
        f"    margin {found.margin.mean():.3g} nats, lost {lost:.3g} ± {found.drop_sem:.2g}; "
        f"without {len(drawn)} random sets of the same layers {drawn.mean():.3g} "
        f"[{drawn.min():.3g}, {drawn.max():.3g}], p {found.p:.2g}\n"
    )


def as_dict(found: PairCheck | str) -> dict[str, Any]:
    """Return the result for JSON."""
    if isinstance(found, str):
        return {"heads": [], "note": found}
    return {
        "heads": list(found.checked),
        "kind": found.kind,
        "pairs": len(found.margin),
        "accuracy": found.accuracy,
        "accuracy_without": found.accuracy_without,
        "margin": float(found.margin.mean()),
        "drop": found.drop,
        "drop_sem": None if math.isnan(found.drop_sem) else found.drop_sem,
        "random_drops": found.random_drops.tolist(),
        "p": found.p,
        "provenance": dict(found.provenance),
    }
