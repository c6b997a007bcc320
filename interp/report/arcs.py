"""Picture of a sentence with two trees: predicted arcs above the words, gold arcs below.

Arcs differ by line as well as by colour: a predicted arc that the gold tree lacks is dashed and
crossed, and a gold arc that was not predicted is dotted.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from markupsafe import Markup

from interp.draw.svg import element, svg_picture

# width of a letter of a word and of a relation, in the fonts of the style sheet
_LETTER, _SMALL = 8.0, 6.2
_STEP, _FIRST = 17.0, 20.0  # height of a level of arcs, and of the first
_BAND = 24.0  # height of the row of words
_GAP, _FAN, _ROUND = 14.0, 6.0, 6.0


@dataclass(frozen=True)
class Arc:
    """One arc between two words; `to` is the dependent, `kind` its style class."""

    head: int
    to: int
    kind: str
    summary: str
    label: str = ""

    @property
    def ends(self) -> tuple[int, int]:
        """The two words, the left word first."""
        return min(self.head, self.to), max(self.head, self.to)


def arcs(
    words: Sequence[str],
    heads: Sequence[int],
    relations: Sequence[str],
    predicted: Sequence[tuple[int, int]],
    *,
    directed: bool = False,
    name: str = "",
) -> Markup:
    """Return the picture as one SVG element."""
    gold = {(head, at) for at, head in enumerate(heads) if head >= 0}
    correct, predicted_pairs = set(gold), set(predicted)
    if not directed:
        correct |= {(at, head) for head, at in gold}
        predicted_pairs |= {(b, a) for a, b in predicted}
    above, below = [], []
    for a, b in predicted:
        right = (a, b) in correct
        text = f"predicted {words[a]} {'->' if directed else '-'} {words[b]}: "
        text += "right" if right else "wrong"
        above.append(Arc(a, b, "hit" if right else "wrong", text))
    for head, at in sorted(gold, key=lambda arc: arc[1]):
        there = (head, at) in predicted_pairs
        text = f"gold {relations[at]}: {words[head]} -> {words[at]}"
        text += ", predicted too" if there else ", not predicted"
        below.append(Arc(head, at, "gold" if there else "missed", text, relations[at]))
    middles, width = _columns(words, above, below)
    up, down = _levels(above), _levels(below)
    top = _height(up) + 8
    hits = sum(arc.kind == "hit" for arc in above)
    what = f"{name}{hits} of {len(above)} predicted arcs are right: {' '.join(words)}"
    parts = [
        _drawn(a, ends, up[a], top, -1, tip=directed) for a, ends in _fanned(above, middles).items()
    ]
    parts += [
        _drawn(a, ends, down[a], top + _BAND, 1, tip=True)
        for a, ends in _fanned(below, middles).items()
    ]
    for word, head, x in zip(words, heads, middles, strict=True):
        style = "w root" if head < 0 else "w"
        parts.append(element("text", word, class_=style, x=x, y=top + 16))
    total = top + _BAND + _height(down) + 8
    return svg_picture(width, total, *parts, class_="arcs", role="img", aria_label=what)


def letters(text: str) -> int:
    """Return the columns of a text in a fixed-width font: wide signs two, marks on letters none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _columns(
    words: Sequence[str], above: Sequence[Arc], below: Sequence[Arc]
) -> tuple[list[float], float]:
    """Return the middle of each word and the total width, with room for arcs and labels."""
    most = [
        max(sum(at in arc.ends for arc in arcs) for arcs in (above, below))
        for at in range(len(words))
    ]
    half = [
        max(_LETTER * letters(word) + _GAP, _FAN * (n + 1)) / 2
        for word, n in zip(words, most, strict=True)
    ]
    steps = [half[0] + 4, *(a + b for a, b in pairwise(half))]
    for arc in sorted(below, key=_length):
        low, high = arc.ends
        # arcs stand beside the middles of their words by up to half the arcs of the word
        needed = _SMALL * letters(arc.label) + _FAN * (2 + (most[low] + most[high]) / 2)
        steps[high] += max(0.0, needed - sum(steps[low + 1 : high + 1]))
    middles = list(accumulate(steps))
    return middles, middles[-1] + half[-1] + 4


def _levels(all_arcs: Sequence[Arc]) -> dict[Arc, int]:
    """Return the level of each arc: outside of every arc that it overlaps."""
    levels: dict[Arc, int] = {}
    for arc in sorted(all_arcs, key=lambda a: (_length(a), a.ends)):
        low, high = arc.ends
        under = [level for o, level in levels.items() if o.ends[0] < high and low < o.ends[1]]
        levels[arc] = max(under, default=0) + 1
    return levels


def _height(levels: dict[Arc, int]) -> float:
    return _FIRST + _STEP * max(levels.values(), default=0)


def _fanned(all_arcs: Sequence[Arc], middles: Sequence[float]) -> dict[Arc, tuple[float, float]]:
    """Return the ends of each arc on its two words, side by side so that none overlap."""
    at: dict[tuple[Arc, int], float] = {}
    for word, middle in enumerate(middles):
        # From the left: the shortest arc to the left comes first, that to the right last.
        left = [arc for arc in all_arcs if arc.ends[1] == word]
        right = [arc for arc in all_arcs if arc.ends[0] == word]
        mine = sorted(left, key=_length) + sorted(right, key=lambda arc: -_length(arc))
        for k, arc in enumerate(mine):
            at[arc, word] = middle + _FAN * (k - (len(mine) - 1) / 2)
    return {arc: (at[arc, arc.ends[0]], at[arc, arc.ends[1]]) for arc in all_arcs}


def _length(arc: Arc) -> int:
    return arc.ends[1] - arc.ends[0]


def _drawn(
    arc: Arc, places: tuple[float, float], level: int, base: float, way: int, *, tip: bool
) -> Markup:
    """Return an arc that leaves the words at `base`, upwards for way -1, downwards for 1."""
    left, right = places
    y = base + way * (_FIRST + _STEP * (level - 1))
    bend = y - way * _ROUND
    path = f"M{left:g} {base:g}V{bend:g}Q{left:g} {y:g} {left + _ROUND:g} {y:g}"
    path += f"H{right - _ROUND:g}Q{right:g} {y:g} {right:g} {bend:g}V{base:g}"
    out = [element("title", arc.summary), element("path", class_=arc.kind, d=path)]
    if tip:
        x = left if arc.to == arc.ends[0] else right
        d = f"M{x:g} {base:g}l-3.5 {way * 7}h7z"
        out.append(element("path", class_=f"tip {arc.kind}", d=d))
    middle = (left + right) / 2
    if arc.kind == "wrong":
        d = f"M{middle - 4:g} {y - 4:g}l8 8m0 -8l-8 8"
        out.append(element("path", class_="cross", d=d))
    if arc.label:
        out.append(element("text", arc.label, class_="r", x=middle, y=y + 3.5))
    return element("g", *out)
