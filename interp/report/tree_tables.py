"""Tables of the page of `interp trees`: relations and trees, with baselines in the same rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from interp.draw.colours import Scale
from interp.draw.page import fold, table
from interp.draw.panel import bar
from interp.draw.svg import element
from interp.syntax.wording import MEANINGS, ORDER, WAYS, by_gain, fraction, headed, share, verdict

if TYPE_CHECKING:
    from interp.syntax.pairs import PairCheck
    from interp.syntax.result import Trees, TreeScores


_SHARES = Scale(0.0, 1.0, False)


def relation_tables(one: TreeScores) -> Markup:
    """Return the best head of every relation beside its baseline, in the order of `by_gain`."""
    ordered = by_gain(one.relations)
    rows = [
        [
            r.relation, headed((r.head,), r.direction),
            bar(r.accuracy, _SHARES, sem=r.interval, null=r.baseline),
            share(r.accuracy, r.interval), f"{share(r.baseline)} at {r.offset:+d}",
            share(r.gain, r.gain_interval, signed=True), f"{r.p:.3g}", verdict(r), f"{r.n:,}",
        ]
        for r in ordered
    ]  # fmt: skip
    more = (
        [
            r.relation, headed(r.ensemble), share(r.ensemble_accuracy, r.ensemble_interval),
            f"{share(r.either)} {headed((r.either_head,))}",
            f"{share(r.oracle)} {headed((r.oracle_head,))}", share(r.random), share(r.shuffled),
        ]
        for r in ordered
    )  # fmt: skip
    ways = "; ".join(f"{sign} {MEANINGS[way]}" for way, sign in WAYS.items())
    unit = (
        f"per cent of dependents whose head word is found; {ways}; the upright line is the"
        f" baseline; in order {ORDER}"
    )
    columns = ["relation", ".head", ("", "wide"), "found", "best offset", "difference", "p", ".",
               "n"]  # fmt: skip
    first = table(columns, rows, "The best head of every relation", unit, "relations")
    unit = (
        "per cent; oracle: the head that is best on the reporting sentences themselves; either:"
        " where one of the two words attends to the other"
    )
    columns = ["relation", ".ensemble", "found", "either", "oracle", "random weights",
               "shuffled words"]  # fmt: skip
    second = table(columns, more, "Beside the best head", unit)
    summary = "Ensembles, either direction, oracle, random weights, shuffled words"
    return first + fold(summary, second)


def trees(one: TreeScores) -> Markup:
    """Return all methods and baselines, the best first, with and without punctuation."""
    return Markup("").join(
        _tree_table([t for t in one.trees if t.punct == punct], punct)
        for punct in (True, False)
        if any(t.punct == punct for t in one.trees)
    )


def minimal_pairs(found: PairCheck | str) -> Markup:
    """Return the loss without the heads, beside random heads of the same layers."""
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
    return table(columns, [row], "Without the heads", unit, "pairs")


def _tree_table(trees: Sequence[Trees], punct: bool) -> Markup:
    rows = (
        [
            f"{t.method} (baseline)" if t.baseline else t.method, headed(t.heads, t.direction),
            fraction(t.uuas, t.uuas_interval), fraction(t.uas, t.uas_interval), f"{t.edges:,}",
        ]
        for t in sorted(trees, key=lambda t: (-t.uuas, t.method))
    )  # fmt: skip
    unit = (
        "UUAS: share of gold edges in the tree, whichever way; UAS: share of words with the right"
        " head"
    )
    caption = f"{'With' if punct else 'Without'} punctuation"
    return table(["method", ".heads", "UUAS", "UAS", "edges"], rows, caption, unit, "trees")
