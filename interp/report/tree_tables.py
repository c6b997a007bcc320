"""The tables of the page of `interp trees`: relations and trees, baselines in the same rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.syntax.pairs import PairCheck
    from interp.syntax.result import Relation, Trees, TreeScores


def above(r: Relation) -> bool:
    """Whether the head is told from the baseline, and better."""
    return r.gain > 0 and r.p < 0.05


FEW = 10  # dependents; a relation with fewer stands below the others
ORDER = (
    "by the lower end of the difference's interval; relations with fewer than"
    f" {FEW} dependents last"
)


def by_gain(found: Sequence[Relation]) -> list[Relation]:
    """The relations in the order that `ORDER` states."""

    def rank(r: Relation) -> tuple[bool, float, float, str]:
        low = r.gain_interval[0]
        return r.n < FEW, -low if math.isfinite(low) else math.inf, -r.gain, r.relation

    return sorted(found, key=rank)


def relations(one: TreeScores) -> str:
    """The best head of every relation beside its baseline, in the order of `by_gain`."""
    ordered = by_gain(one.relations)
    body = "".join(
        f'<tr><th scope="row">{escape(r.relation)}</th>'
        f'<td class="words">{escape(headed((r.head,), r.direction))}</td>'
        f'<td class="wide">{_bar(r)}</td><td>{share(r.accuracy, r.interval)}</td>'
        f"<td>{share(r.baseline)} at {r.offset:+d}</td>"
        f"<td>{share(r.gain, r.gain_interval, signed=True)}</td>"
        f'<td>{r.p:.3g}</td><td class="words">{verdict(r)}</td><td>{r.n:,}</td></tr>'
        for r in ordered
    )
    more = "".join(
        f'<tr><th scope="row">{escape(r.relation)}</th>'
        f'<td class="words">{escape(headed(r.ensemble))}</td>'
        f"<td>{share(r.ensemble_accuracy, r.ensemble_interval)}</td>"
        f"<td>{share(r.either)} {escape(headed((r.either_head,)))}</td>"
        f"<td>{share(r.oracle)} {escape(headed((r.oracle_head,)))}</td>"
        f"<td>{share(r.random)}</td><td>{share(r.shuffled)}</td></tr>"
        for r in ordered
    )
    ways = "; ".join(f"{sign} {escape(_TOLD[way])}" for way, sign in WAYS.items())
    return (
        '<h3>Relations</h3><div class="scroll" tabindex="0"><table class="relations">'
        '<caption>The best head of every relation <span class="unit">per cent of dependents'
        f" whose head word is found; {ways}; the upright line is the baseline; in order"
        f" {ORDER}</span></caption>"
        f"{_row('relation', '.head', '!', 'found', 'best offset', 'difference', 'p', '.', 'n')}"
        f"<tbody>{body}</tbody></table></div>"
        "<details><summary>Ensembles, either direction, oracle, random weights, shuffled words"
        '</summary><div class="scroll" tabindex="0"><table><caption>Beside the best head '
        '<span class="unit">per cent; oracle: the head that is best on the reporting sentences'
        " themselves; either: where one of the two words attends to the other</span></caption>"
        f"{_row('relation', '.ensemble', 'found', *_BESIDE)}"
        f"<tbody>{more}</tbody></table></div></details>"
    )


WAYS = {"row": "→", "column": "←", "both": "↔"}
_BESIDE = ("either", "oracle", "random weights", "shuffled words")
_TOLD = {
    "row": "the dependent attends to its head word",
    "column": "its head word attends to the dependent",
    "both": "the mean of both",
}


def headed(heads: Sequence[str], direction: str = "") -> str:
    """Heads in a row, directions as arrows: `L2H0 row` is `L2H0 →`."""
    words = [WAYS.get(word, word) for word in f"{' '.join(heads)} {direction}".split()]
    return " ".join(words)


def verdict(r: Relation) -> str:
    """Where the head stands against its baseline, in words."""
    if r.p < 0.05 and r.gain != 0:
        return "above" if r.gain > 0 else "below"
    return "not told apart"


def trees(one: TreeScores) -> str:
    """Every way to make trees and every baseline, the best first, with and without punctuation."""
    return "<h3>Trees</h3>" + "".join(
        _tree_table([t for t in one.trees if t.punct == punct], punct)
        for punct in (True, False)
        if any(t.punct == punct for t in one.trees)
    )


def minimal_pairs(found: PairCheck | str) -> str:
    """What the model loses without the heads, beside random heads of the same layers."""
    if isinstance(found, str):
        return f"<h3>Minimal pairs</h3><p>{escape(found)}</p>"
    drawn, sem = found.random_drops, found.drop_sem
    cells = [
        f"{found.accuracy:.1%}",
        f"{found.accuracy_without:.1%}",
        f"{found.margin.mean():.3g}",
        f"{found.drop:.3g}" + (f" ± {sem:.2g}" if math.isfinite(sem) else ""),
        f"{drawn.mean():.3g} [{drawn.min():.3g}, {drawn.max():.3g}]",
        f"{found.p:.2g}",
        f"{len(found.margin):,}",
    ]
    heads = f'<th scope="row" class="words">{escape(headed(found.heads))}</th>'
    named = ("right", "right without", "margin", "lost", "lost to random heads", "p", "pairs")
    return (
        '<h3>Minimal pairs</h3><div class="scroll" tabindex="0"><table class="pairs"><caption>'
        f'Without the heads <span class="unit">{escape(found.kind)} of the good sentence less that'
        f" of the bad one, nats; ± is one standard error over pairs; {len(drawn)} random sets of"
        " heads of the same layers with lowest and highest; p: the share of sets that cost as"
        f" much</span></caption>{_row('.heads', *named)}<tbody><tr>{heads}"
        f"{''.join(f'<td>{cell}</td>' for cell in cells)}</tr></tbody></table></div>"
    )


def _tree_table(trees: Sequence[Trees], punct: bool) -> str:
    ordered = sorted(trees, key=lambda t: (-t.uuas, t.method))
    body = "".join(
        f'<tr class="{"baseline" if t.baseline else "own"}"><th scope="row">{escape(t.method)}'
        f"{' (baseline)' if t.baseline else ''}</th>"
        f'<td class="words">{escape(headed(t.heads, t.direction))}</td>'
        f"<td>{fraction(t.uuas, t.uuas_interval)}</td><td>{fraction(t.uas, t.uas_interval)}</td>"
        f"<td>{t.edges:,}</td></tr>"
        for t in ordered
    )
    return (
        '<div class="scroll" tabindex="0"><table class="trees"><caption>'
        f'{"With" if punct else "Without"} punctuation <span class="unit">UUAS: share of gold'
        " edges in the tree, whichever way; UAS: share of words with the right head</span>"
        f"</caption>{_row('method', '.heads', 'UUAS', 'UAS', 'edges')}<tbody>{body}</tbody>"
        "</table></div>"
    )


def _row(*names: str) -> str:
    """The head of a table; a name that begins with a dot is of words, `!` is the bars."""
    cells = []
    for name in names:
        style = ' class="words"' if name.startswith(".") else ""
        if name == "!":
            cells.append('<th scope="col" class="wide"></th>')
        else:
            cells.append(f'<th scope="col"{style}>{escape(name.lstrip("."))}</th>')
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _bar(r: Relation) -> str:
    """What the head finds, from 0 to 100 %, its interval, and the baseline as an upright line."""

    def x(value: float) -> float:
        return round(160 * min(max(value, 0.0), 1.0), 1)

    out = f'<rect x="0" y="3" width="{x(r.accuracy):g}" height="8" class="q18"/>'
    if all(map(math.isfinite, r.interval)):
        low, high = map(x, r.interval)
        out += f'<path class="error" d="M{low:g} 7H{high:g}M{low:g} 4v6M{high:g} 4v6"/>'
    if math.isfinite(r.baseline):
        out += f'<path class="null" d="M{x(r.baseline):g} 0v14"/>'
    return f'<svg class="score" viewBox="-1 0 162 14" aria-hidden="true">{out}</svg>'


def share(
    value: float, interval: tuple[float, float] | None = None, *, signed: bool = False
) -> str:
    """A share in per cent, with its interval where it has one."""
    if not math.isfinite(value):
        return "none"
    sign = "+" if signed else ""
    told = f"{100 * value:{sign}.1f}"
    if interval is not None and all(map(math.isfinite, interval)):
        low, high = (f"{100 * end:{sign}.1f}" for end in interval)
        told += f" [{low}, {high}]"
    return told


def fraction(value: float, interval: tuple[float, float]) -> str:
    """A share between 0 and 1, with its interval where it has one."""
    if not math.isfinite(value):
        return "none"
    low, high = interval
    return f"{value:.3f}" + (f" [{low:.3f}, {high:.3f}]" if math.isfinite(low + high) else "")
