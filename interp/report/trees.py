"""Page of `interp trees`: relations, trees, the map of heads, and sentences with their arcs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.draw.colours import Scale, scale_ends
from interp.draw.page import render as fill
from interp.draw.panel import colour_bar, head_map
from interp.report.arcs import arcs
from interp.report.tree_tables import minimal_pairs, relation_tables, trees
from interp.syntax.wording import above, by_gain

if TYPE_CHECKING:
    from interp.syntax.pairs import PairCheck
    from interp.syntax.result import TreeScores


def trees_page(
    found: Sequence[TreeScores],
    *,
    title: str = "Dependency trees from attention heads",
    command: str | None = None,
    beside: Sequence[str] = (),
    pairs: Mapping[str, PairCheck | str] | None = None,
) -> str:
    """Return one HTML page without scripts; equal results give equal bytes.

    Args:
        found: One result per model.
        title: The title of the page.
        command: The command line that made the results.
        beside: Names of files in the same folder that hold all numbers.
        pairs: The loss of a model on minimal pairs, by its name, or why there is none.
    """
    sections = [_section(one, (pairs or {}).get(one.model)) for one in found]
    return fill("trees", title, command=command, beside=beside, sections=sections)


def _section(one: TreeScores, pairs: PairCheck | str | None) -> dict[str, Any]:
    return {
        "model": one.model, "notes": one.notes, "found": _found(one),
        "relations": relation_tables(one),
        "counts": {name.replace("_", " "): f"{n:,}" for name, n in one.counts.items()},
        "trees": trees(one), "made": one.provenance, **_maps(one),
        "pairs": None if pairs is None else minimal_pairs(pairs),
        "sentences": [
            (s.sent_id, s.found, sum(head >= 0 for head in s.heads),
             arcs(s.words, s.heads, s.relations, s.predicted, directed=s.directed))
            for s in one.drawn
        ],
    }  # fmt: skip


def _found(one: TreeScores) -> dict[str, Any]:
    """Return the numbers of the first sentences of a section."""
    better = by_gain([r for r in one.relations if above(r)])
    trees = [t for t in one.trees if t.punct]
    return {
        "better": len(better), "of": len(one.relations),
        "best": [f"{r.relation} ({r.head})" for r in better[:5]],
        "base": max((t.uuas for t in trees if t.baseline), default=None),
        "tree": max((t for t in trees if not t.baseline), key=lambda t: t.uuas, default=None),
    }  # fmt: skip


def _maps(one: TreeScores) -> dict[str, Any]:
    """Return maps of the UUAS of every head, with the ends of the colours."""
    import numpy as np

    flat = [x for grid in one.by_head.values() for row in grid for x in row]
    known = [x for x in flat if math.isfinite(x)]
    if not known:
        return {"maps": {}}
    scale = Scale(0.0, max(known) or 1.0, False)
    maps: dict[str, Markup] = {}
    for stack, rows in one.by_head.items():
        grid = np.full((len(rows), max(map(len, rows))), np.nan)
        for layer, row in enumerate(rows):
            grid[layer, : len(row)] = row
        titles = {
            (layer, head): f"L{layer}H{head}: {f'{x:.3f}' if math.isfinite(x) else 'no score'}"
            for layer, row in enumerate(rows)
            for head, x in enumerate(row)
        }
        what = f"{stack}: UUAS of {grid.shape[0]} layers by {grid.shape[1]} heads"
        maps[stack] = head_map(scale.bins(grid), what, signed=False, titles=titles, role="img")
    return {"maps": maps, "ends": scale_ends(scale), "bar": colour_bar(scale)}
