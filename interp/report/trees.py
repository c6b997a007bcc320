"""Page of `interp study trees`: relations, trees, the map of heads, sentences with arcs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.core.ties import ordered_by
from interp.draw.colours import Scale, scale_ends
from interp.draw.page import fold, table
from interp.draw.page import render as fill
from interp.draw.panel import bar, colour_bar, head_map
from interp.draw.svg import element
from interp.report.arcs import arcs
from interp.syntax.wording import (
    MEANINGS,
    ORDER,
    WAYS,
    above,
    by_gain,
    fraction,
    headed,
    share,
    verdict,
)

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.syntax.result import Trees, TreeScores

_SHARES = Scale(0.0, 1.0, False)


def trees_page(
    found: Sequence[TreeScores],
    *,
    title: str = "Dependency trees from attention heads",
    command: str | None = None,
    beside: Sequence[str] = (),
    pairs: Mapping[str, ResultRows | str] | None = None,
) -> str:
    """Return one HTML page without scripts; equal results give equal bytes."""
    sections = [_section(one, (pairs or {}).get(one.model)) for one in found]
    line = "; ".join(one.first_line() for one in found[:2])
    more = f"; {len(found) - 2} more models" if len(found) > 2 else ""
    return fill(
        "trees", title, heading=line + more, command=command, beside=beside, sections=sections
    )


def _section(one: TreeScores, pairs: ResultRows | str | None) -> dict[str, Any]:
    return {
        "model": one.model,
        "notes": one.notes,
        "found": _found(one),
        "relations": _relations(one),
        "counts": {name.replace("_", " "): f"{n:,}" for name, n in one.counts.items()},
        "trees": _trees(one),
        "made": one.provenance,
        **_maps(one),
        "pairs": None if pairs is None else _minimal_pairs(pairs),
        "sentences": [
            (
                s.sent_id,
                s.found,
                sum(head >= 0 for head in s.heads),
                arcs(s.words, s.heads, s.relations, s.predicted, directed=s.directed),
            )
            for s in one.drawn
        ],
    }


def _found(one: TreeScores) -> dict[str, Any]:
    """Return the numbers of the first sentences of a section."""
    better = by_gain([r for r in one.relations if above(r)])
    trees = [t for t in one.trees if t.punct]
    return {
        "better": len(better),
        "of": len(one.relations),
        "best": [f"{r.relation} ({r.head})" for r in better[:5]],
        "base": max((t.uuas for t in trees if t.baseline), default=None),
        "tree": next(
            iter(ordered_by((t for t in trees if not t.baseline), lambda t: t.uuas)), None
        ),
    }


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


def _relations(one: TreeScores) -> Markup:
    """Return the best head of every relation beside its baseline, in the order of `by_gain`."""
    ordered = by_gain(one.relations)
    rows = [
        [
            r.relation,
            headed((r.head,), r.direction),
            bar(r.accuracy, _SHARES, sem=r.interval, null=r.baseline),
            share(r.accuracy, r.interval),
            f"{share(r.baseline)} at {r.offset:+d}",
            share(r.gain, r.gain_interval, signed=True),
            f"{r.p:.3g}",
            verdict(r),
            f"{r.n:,}",
        ]
        for r in ordered
    ]
    more = (
        [
            r.relation,
            headed(r.ensemble),
            share(r.ensemble_accuracy, r.ensemble_interval),
            f"{share(r.either)} {headed((r.either_head,))}",
            f"{share(r.oracle)} {headed((r.oracle_head,))}",
            share(r.random),
            share(r.shuffled),
        ]
        for r in ordered
    )
    ways = "; ".join(f"{sign} {MEANINGS[way]}" for way, sign in WAYS.items())
    unit = (
        f"per cent of dependents whose head word is found; {ways}; the upright line is the"
        f" baseline; in order {ORDER}"
    )
    columns = [
        "relation",
        ".head",
        ("", "wide"),
        "found",
        "best offset",
        "difference",
        "p",
        ".",
        "n",
    ]
    first = table(columns, rows, "The best head of every relation", unit, "relations")
    unit = (
        "per cent; oracle: the head that is best on the reporting sentences themselves; either:"
        " where one of the two words attends to the other"
    )
    columns = [
        "relation",
        ".ensemble",
        "found",
        "either",
        "oracle",
        "random weights",
        "shuffled words",
    ]
    second = table(columns, more, "Beside the best head", unit)
    summary = "Ensembles, either direction, oracle, random weights, shuffled words"
    return first + fold(summary, second)


def _trees(one: TreeScores) -> Markup:
    """Return all methods and baselines, the best first, with and without punctuation."""
    return Markup("").join(
        _tree_table([t for t in one.trees if t.punct == punct], punct)
        for punct in (True, False)
        if any(t.punct == punct for t in one.trees)
    )


def _minimal_pairs(found: ResultRows | str) -> Markup:
    """Return the loss without the heads, beside random heads of the same layers."""
    if isinstance(found, str):
        return element("p", found)
    drawn, sem = found.drop[1:], found.sem[0]
    row = [
        headed(found.checked),
        f"{found.accuracy_clean:.1%}",
        f"{found.accuracy[0]:.1%}",
        f"{found.margin.mean():.3g}",
        f"{found.drop[0]:.3g}" + (f" ± {sem:.2g}" if math.isfinite(sem) else ""),
        f"{drawn.mean():.3g} [{drawn.min():.3g}, {drawn.max():.3g}]",
        f"{found.p:.2g}",
        f"{len(found.margin):,}",
    ]
    columns = [
        ".heads",
        "right",
        "right without",
        "margin",
        "lost",
        "lost to random heads",
        "p",
        "pairs",
    ]
    unit = (
        f"{found.likelihood} of the good sentence less that of the bad one, nats; ± is one standard"
        f" error over pairs; {len(drawn)} random sets of heads of the same layers with lowest and"
        " highest; p: the share of sets that cost as much"
    )
    return table(columns, [row], "Without the heads", unit, "pairs")


def _tree_table(trees: Sequence[Trees], punct: bool) -> Markup:
    rows = (
        [
            f"{t.method} (baseline)" if t.baseline else t.method,
            headed(t.heads, t.direction),
            fraction(t.uuas, t.uuas_interval),
            fraction(t.uas, t.uas_interval),
            f"{t.edges:,}",
        ]
        for t in ordered_by(sorted(trees, key=lambda t: t.method), lambda t: t.uuas)
    )
    unit = (
        "UUAS: share of gold edges in the tree, whichever way; UAS: share of words with the right"
        " head"
    )
    caption = f"{'With' if punct else 'Without'} punctuation"
    return table(["method", ".heads", "UUAS", "UAS", "edges"], rows, caption, unit, "trees")
