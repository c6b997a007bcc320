"""The tables of the page of `interp trees`: relations and trees, baselines in the same rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from interp.draw.colours import Scale
from interp.draw.page import Table, fold
from interp.draw.panel import bar
from interp.draw.svg import element

if TYPE_CHECKING:
    from interp.syntax.pairs import PairCheck
    from interp.syntax.result import Relation, Trees, TreeScores


def above(r: Relation) -> bool:
    """Whether the head is told from the baseline, and better."""
    return r.gain > 0 and r.p < 0.05


_SHARES = Scale(0.0, 1.0, False)
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


def relation_tables(one: TreeScores) -> Markup:
    """The best head of every relation beside its baseline, in the order of `by_gain`."""
    ordered = by_gain(one.relations)
    rows = (
        [
            r.relation, headed((r.head,), r.direction),
            bar(r.accuracy, _SHARES, sem=r.interval, null=r.baseline),
            share(r.accuracy, r.interval), f"{share(r.baseline)} at {r.offset:+d}",
            share(r.gain, r.gain_interval, signed=True), f"{r.p:.3g}", verdict(r), f"{r.n:,}",
        ]
        for r in ordered
    )  # fmt: skip
    more = (
        [
            r.relation, headed(r.ensemble), share(r.ensemble_accuracy, r.ensemble_interval),
            f"{share(r.either)} {headed((r.either_head,))}",
            f"{share(r.oracle)} {headed((r.oracle_head,))}", share(r.random), share(r.shuffled),
        ]
        for r in ordered
    )  # fmt: skip
    ways = "; ".join(f"{sign} {_TOLD[way]}" for way, sign in WAYS.items())
    unit = (
        f"per cent of dependents whose head word is found; {ways}; the upright line is the"
        f" baseline; in order {ORDER}"
    )
    columns = ["relation", ".head", ("", "wide"), "found", "best offset", "difference", "p", ".",
               "n"]  # fmt: skip
    first = Table(columns, rows, "The best head of every relation", unit, "relations")
    unit = (
        "per cent; oracle: the head that is best on the reporting sentences themselves; either:"
        " where one of the two words attends to the other"
    )
    columns = ["relation", ".ensemble", "found", *_BESIDE]
    second = Table(columns, more, "Beside the best head", unit)
    summary = "Ensembles, either direction, oracle, random weights, shuffled words"
    return Markup(first.__html__()) + fold(summary, second)


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


def trees(one: TreeScores) -> Markup:
    """Every way to make trees and every baseline, the best first, with and without punctuation."""
    return Markup("").join(
        _tree_table([t for t in one.trees if t.punct == punct], punct)
        for punct in (True, False)
        if any(t.punct == punct for t in one.trees)
    )


def minimal_pairs(found: PairCheck | str) -> Markup | Table:
    """What the model loses without the heads, beside random heads of the same layers."""
    if isinstance(found, str):
        return element("p", found)
    drawn, sem = found.random_drops, found.drop_sem
    row = [
        headed(found.checked), f"{found.accuracy:.1%}", f"{found.accuracy_without:.1%}",
        f"{found.margin.mean():.3g}",
        f"{found.drop:.3g}" + (f" ± {sem:.2g}" if math.isfinite(sem) else ""),
        f"{drawn.mean():.3g} [{drawn.min():.3g}, {drawn.max():.3g}]", f"{found.p:.2g}",
        f"{len(found.margin):,}",
    ]  # fmt: skip
    columns = [".heads", "right", "right without", "margin", "lost", "lost to random heads", "p",
               "pairs"]  # fmt: skip
    unit = (
        f"{found.kind} of the good sentence less that of the bad one, nats; ± is one standard"
        f" error over pairs; {len(drawn)} random sets of heads of the same layers with lowest and"
        " highest; p: the share of sets that cost as much"
    )
    return Table(columns, [row], "Without the heads", unit, "pairs")


def _tree_table(trees: Sequence[Trees], punct: bool) -> Table:
    rows = []
    for t in sorted(trees, key=lambda t: (-t.uuas, t.method)):
        name = f"{t.method} (baseline)" if t.baseline else t.method
        rows.append([name, headed(t.heads, t.direction), fraction(t.uuas, t.uuas_interval),
                     fraction(t.uas, t.uas_interval), f"{t.edges:,}"])  # fmt: skip
    unit = (
        "UUAS: share of gold edges in the tree, whichever way; UAS: share of words with the right"
        " head"
    )
    caption = f"{'With' if punct else 'Without'} punctuation"
    return Table(["method", ".heads", "UUAS", "UAS", "edges"], rows, caption, unit, "trees")


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
