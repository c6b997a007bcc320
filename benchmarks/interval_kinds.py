"""Coverage of the intervals of means that are chosen by the kind of values; see
`interp.core.intervals.mean_intervals`. Part of interval_coverage.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from interp.core.intervals import around, mean_intervals

Array = np.ndarray
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]
COUNTS = (4, 6, 8, 12, 16, 32)
PER_CLUSTER = 3  # values of one cluster
UNIT, ANY = (0.0, 1.0), (None, None)
KINDS: dict[str, tuple[Draw, float, tuple[float | None, float | None]]] = {
    "0 or 1, 10 % are 1": (lambda rng, n: (rng.random(n) < 0.1).astype(float), 0.1, UNIT),
    "0 or 1, 90 % are 1": (lambda rng, n: (rng.random(n) < 0.9).astype(float), 0.9, UNIT),
    "near 0: beta(0.3, 3)": (lambda rng, n: rng.beta(0.3, 3, n), 1 / 11, UNIT),
    "near 1: beta(3, 0.3)": (lambda rng, n: rng.beta(3, 0.3, n), 10 / 11, UNIT),
    "log-normal, sigma 1": (lambda rng, n: rng.lognormal(size=n), math.exp(0.5), ANY),
    "0 or 1 without bounds": (lambda rng, n: (rng.random(n) < 0.1).astype(float), 0.1, ANY),
    "normal": (lambda rng, n: rng.normal(size=n), 0.0, ANY),
}


def measured_kinds(runs: int) -> list[dict[str, Any]]:
    """Measure how often intervals are shown, and how often those hold the mean.

    Values are independent, or `PER_CLUSTER` of a cluster are equal; n counts independent values.
    Beside it: how often the t interval, which is always shown, holds the mean.
    """
    rows = []
    for at, (kind, (draw, truth, bounds)) in enumerate(KINDS.items()):
        for clustered in (False, True):
            for n in COUNTS:
                each = draw(np.random.default_rng([at, n, clustered]), (runs, n))
                values = each.repeat(PER_CLUSTER, 1) if clustered else each
                labels = [i // PER_CLUSTER for i in range(values.shape[1])] if clustered else None
                found = mean_intervals(values, clusters=labels, bounds=bounds)
                shown = ~np.isnan(found.ends[:, 0])
                held = _holds(found.ends, truth)[shown]
                plain = around(each.mean(1), [(each.std(1, ddof=1) / n**0.5, n - 1.0)])
                rows.append(
                    {
                        "kind": kind,
                        "clustered": clustered,
                        "n": n,
                        "runs": runs,
                        "shown": float(shown.mean()),
                        "covered": float(held.mean()) if len(held) else None,
                        "width": float(np.median(np.ptp(found.ends[shown], 1)))
                        if len(held)
                        else None,
                        "missed": float((~held).sum() / runs),
                        "t": float(_holds(plain, truth).mean()),
                    }
                )
        print(kind, [(r["n"], r["shown"], r["covered"]) for r in rows[-len(COUNTS) :]], flush=True)
    return rows


def _holds(ends: Array, truth: float) -> Array:
    return (ends[:, 0] <= truth + 1e-12) & (truth - 1e-12 <= ends[:, 1])


def short_of(rows: list[dict[str, Any]], level: float = 0.95) -> list[dict[str, Any]]:
    """Return the rows that miss more often than stated, by two standard errors of all draws."""
    error = 2 * math.sqrt(level * (1 - level))
    return [r for r in rows if r["missed"] > 1 - level + error / math.sqrt(r["runs"])]


def kinds_page(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table."""
    out = [
        "## Means of values of one kind",
        "",
        "What `interp score`, `interp compare` and `interp compare match` report for a head: the "
        "interval",
        "of a mean, chosen by the kind of values (`interp.core.intervals.mean_intervals`).",
        f"{rows[0]['runs']} draws each. An interval that cannot reach 95 % is not shown: the",
        'result says "too few" and why. *Covered* is the share of the shown intervals that hold',
        "the mean, ± its standard error; *missed* the share of all draws in which an interval is",
        "shown and wrong. *t* is the t interval of the same values, which is always shown. n",
        f"counts independent values; clusters hold {PER_CLUSTER} equal ones.",
        "",
        "| values | clusters | n | shown | covered | missed | median width | t |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        some = r["shown"] >= 0.01  # fewer draws are too few for a share
        shown = f"{r['shown']:.0%}" if some or not r["shown"] else "under 1 %"
        error = (
            math.sqrt(r["covered"] * (1 - r["covered"]) / (r["runs"] * r["shown"])) if some else 0
        )
        out.append(
            f"| {r['kind']} | {'yes' if r['clustered'] else 'no'} | {r['n']} | {shown} | "
            + (f"{r['covered']:.3f} ± {error:.3f}" if some else "")
            + f" | {r['missed']:.3f} | "
            + (f"{r['width']:.2g}" if some else "")
            + f" | {r['t']:.3f} |"
        )
    low = short_of(rows)
    named = "; ".join(f"{r['kind']}, n {r['n']}" for r in low) or "none"
    return [*out, "", f"Missed in more than 5 % of the draws, by two standard errors: {named}.", ""]
