"""Dependency trees from attention as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.syntax.result import TreeScores


def trees_text(one: TreeScores, top: int) -> str:
    """Format one model for a terminal: the first relations, trees, notes."""
    from interp.syntax.wording import ORDER, by_gain, fraction, headed, share, verdict

    relations = [("relation", "head", "found %", "best offset", "difference", "p", "", "n")]
    for r in by_gain(one.relations)[:top]:
        relations.append(
            (
                r.relation,
                headed((r.head,), r.direction),
                share(r.accuracy, r.interval),
                f"{share(r.baseline)} at {r.offset:+d}",
                share(r.gain, r.gain_interval, signed=True),
                f"{r.p:.3g}",
                verdict(r),
                f"{r.n:,}",
            )
        )
    trees = [("trees", "heads", "UUAS", "UAS", "punct", "edges")]
    for t in sorted(one.trees, key=lambda t: (not t.punct, -t.uuas)):
        trees.append(
            (
                t.method + (" (baseline)" if t.baseline else ""),
                headed(t.heads, t.direction),
                fraction(t.uuas, t.uuas_interval),
                fraction(t.uas, t.uas_interval),
                "in" if t.punct else "out",
                f"{t.edges:,}",
            )
        )
    left = len(one.relations) - len(relations) + 1
    more = [f"{left} more relations: use --top, --json or --out"] if left else []
    more += [f"relations are ordered {ORDER}"] if top else []
    counts = ", ".join(f"{k.replace('_', ' ')} {n:,}" for k, n in one.counts.items() if n)
    notes = [f"note: {note}" for note in one.notes]
    lines = [*(columns(relations) if top else []), *more, *columns(trees), counts, *notes]
    return "\n".join([one.model, *(f"  {line}".rstrip() for line in lines), ""])


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Format rows of texts as lines with aligned columns."""
    width = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(f"{c:<{w}}" for c, w in zip(row, width, strict=True)) for row in rows]


def minimal_pairs_text(found: ResultRows | str) -> str:
    """Format the effect of ablating heads on minimal pairs."""
    if isinstance(found, str):
        return f"  {found}\n"
    drawn, n = found.drop[1:], len(found.margin)
    return (
        f"  minimal pairs ({found.likelihood}, {n} pairs): {found.accuracy_clean:.1%} right, "
        f"{found.accuracy[0]:.1%} without {' '.join(found.checked)}\n"
        f"    margin {found.margin.mean():.3g} nats, lost {found.drop[0]:.3g} ± "
        f"{found.sem[0]:.2g}; without {len(drawn)} random sets of the same layers "
        f"{drawn.mean():.3g} [{drawn.min():.3g}, {drawn.max():.3g}], p {found.p:.2g}\n"
    )
