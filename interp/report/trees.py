"""The page of `interp trees`: relations, trees, the map of heads, and sentences with their arcs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from interp.draw.colours import Scale, ends
from interp.report import arcs
from interp.report.tokens import page
from interp.report.tree_tables import above, by_gain, minimal_pairs, relations, trees

if TYPE_CHECKING:
    from interp.syntax.pairs import PairCheck
    from interp.syntax.result import Drawn, TreeScores

_CELL, _LEFT, _TOP = 18, 30, 20  # of the map
_READING = (
    "Heads, directions and offsets are chosen on one part of the treebank; every number is from"
    " the other. In square brackets are 95 % intervals over sentences. The baseline of a relation"
    " is the one distance between a word and its head word that is right most often; those of"
    " trees stand in the same table. p is corrected over all relations (Holm): below 0.05 the"
    " head is told from the baseline."
)
_ARCS = (
    "The gold tree is below the words, with its relations and its root underlined; above are the"
    " predicted arcs. A predicted arc that is wrong is dashed and crossed; a gold arc that was not"
    " found is dotted."
)
_STYLE = """
.relations td, .relations th { vertical-align: middle; }
.relations svg.score { width: 162px; }
td.words, th.words { text-align: left; }
tr.baseline th, tr.baseline td { font-style: italic; color: var(--soft); }
svg.map { cursor: default; }
h3, p, li { overflow-wrap: anywhere; }
.scroll { margin-bottom: .9rem; }
.sentence { margin: 0 0 1.4rem; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: .6rem; }
"""


def render(
    found: Sequence[TreeScores],
    *,
    title: str = "Dependency trees from attention heads",
    command: str | None = None,
    beside: Sequence[str] = (),
    pairs: Mapping[str, PairCheck | str] | None = None,
) -> str:
    """One HTML page, offline and without scripts; the same results give the same bytes.

    Args:
        found: one result per model.
        beside: names of files in the same folder that have the numbers in full.
        pairs: what a model lost on minimal pairs, by its name, or why there is no number.
    """
    links = ", ".join(f'<a href="./{quote(name)}">{escape(name)}</a>' for name in beside)
    out = [f"<p>The same numbers, in full: {links}</p>" if beside else "", f"<p>{_READING}</p>"]
    if len(found) > 1:
        items = (f'<li><a href="#m{i}">{escape(f.model)}</a></li>' for i, f in enumerate(found))
        out.append(f'<nav aria-label="models"><ul>{"".join(items)}</ul></nav>')
    out.append("</header>\n<main>")
    for at, one in enumerate(found):
        out.append(f'<section id="m{at}"><h2>{escape(one.model)}</h2>')
        out += [_counts(one), _told(one), relations(one), trees(one), _maps(one)]
        if pairs is not None and one.model in pairs:
            out.append(minimal_pairs(pairs[one.model]))
        out += [_sentences(one.drawn), "</section>"]
    out += ["</main>", _foot(found)]
    return page(title, "\n".join(out), command=command, style=_STYLE + arcs.STYLE)


def _counts(one: TreeScores) -> str:
    pairs = "".join(
        f"<div><dt>{escape(name.replace('_', ' '))}</dt><dd>{n:,}</dd></div>"
        for name, n in one.counts.items()
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in one.notes)
    return f"<dl>{pairs}</dl>" + (f'<ul class="notes">{notes}</ul>' if notes else "")


def _told(one: TreeScores) -> str:
    """The findings in two sentences."""
    better = [r for r in one.relations if above(r)]
    names = ", ".join(f"{r.relation} ({r.head})" for r in by_gain(better)[:5])
    told = f"{len(better)} of {len(one.relations)} relations have a head above their baseline"
    told += f": {names}{', ...' if len(better) > 5 else ''}." if better else "."
    base = max((t.uuas for t in one.trees if t.baseline and t.punct), default=None)
    made = max(
        (t for t in one.trees if not t.baseline and t.punct), key=lambda t: t.uuas, default=None
    )
    if made is not None:
        told += (
            f" The best trees ({made.method}, {' '.join(made.heads)}) have"
            f" {made.uuas:.3f} of the gold edges"
            f"{'' if base is None else f', the best baseline {base:.3f}'}."
        )
    return f"<p>{escape(told)}</p>"


def _maps(one: TreeScores) -> str:
    """UUAS of every head, layers 0 on top."""
    flat = [x for grid in one.by_head.values() for row in grid for x in row]
    known = [x for x in flat if math.isfinite(x)]
    if not known:
        return ""
    scale = Scale(0.0, max(known) or 1.0, False)
    low, high = ends(scale)
    maps = "".join(
        f"<figure><figcaption>{escape(stack)}</figcaption>{_map(stack, grid, scale)}</figure>"
        for stack, grid in one.by_head.items()
    )
    return (
        "<h3>Every head</h3><p>UUAS of each head's maximum spanning trees on the sentences that"
        " choose, rows are layers, columns heads; a grey cell has none."
        f" Colours from {low} to {high}, the largest of these. Point at a cell for its number.</p>"
        f'<div class="panels">{maps}</div><div class="scale"><span>{low}</span>'
        f'<i class="bar bar-q"></i><span>{high}</span></div>'
    )


def _map(stack: str, grid: Sequence[Sequence[float]], scale: Scale) -> str:
    import numpy as np

    n_heads = max(map(len, grid))
    size = _LEFT + n_heads * _CELL + 2, _TOP + len(grid) * _CELL + 2
    what = f"{stack}: UUAS of {len(grid)} layers by {n_heads} heads"
    out = [
        f'<svg class="map" role="img" aria-label="{escape(what)}" width="{size[0]}"'
        f' height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}">'
    ]
    for head in range(n_heads):
        out.append(f'<text x="{_LEFT + (head + 0.5) * _CELL:g}" y="{_TOP - 6}">{head}</text>')
    for layer, row in enumerate(grid):
        y = _TOP + layer * _CELL
        out.append(f'<text x="{_LEFT - 6}" y="{y + _CELL / 2 + 4:g}" class="y">{layer}</text>')
        bins = scale.bins(np.asarray(row, dtype=float))
        for head, value in enumerate(row):
            told = f"L{layer}H{head}: " + (f"{value:.3f}" if math.isfinite(value) else "no score")
            colour = f"q{bins[head]}" if bins[head] >= 0 else "none"
            out.append(
                f'<rect x="{_LEFT + head * _CELL}" y="{y}" width="{_CELL - 1}"'
                f' height="{_CELL - 1}" class="{colour}"><title>{told}</title></rect>'
            )
    return "".join([*out, "</svg>"])


def _sentences(drawn: Sequence[Drawn]) -> str:
    if not drawn:
        return ""
    out = [f"<h3>Sentences</h3><p>{_ARCS}</p>"]
    for one in drawn:
        edges = sum(head >= 0 for head in one.heads)
        picture = arcs.arcs(
            one.words, one.heads, one.relations, one.predicted, directed=one.directed
        )
        out.append(
            f'<figure class="sentence"><figcaption>{escape(one.sent_id)} <span class="unit">'
            f"{one.found} of {edges} gold edges found</span></figcaption>"
            f'<div class="scroll" tabindex="0">{picture}</div></figure>'
        )
    return "\n".join(out)


def _foot(found: Sequence[TreeScores]) -> str:
    parts = []
    for one in found:
        pairs = "".join(
            f"<div><dt>{escape(str(k))}</dt><dd>{escape(_plain(v))}</dd></div>"
            for k, v in one.provenance.items()
        )
        parts.append(f"<h3>How {escape(one.model)} was read</h3><dl>{pairs}</dl>")
    return f"<footer>{''.join(parts)}</footer>"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value))
    return "none" if value is None else str(value)
