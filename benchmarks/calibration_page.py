"""Page of the calibration: rates of false findings, coverage and power as tables."""

from __future__ import annotations

from typing import Any


def between(hits: int, n: int) -> tuple[float, float]:
    """The exact binomial 95 % interval (Clopper and Pearson)."""
    from scipy.stats import beta

    low = float(beta.ppf(0.025, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, n - hits)) if hits < n else 1.0
    return round(low, 4), round(high, 4)


def page(found: dict[str, Any]) -> str:
    out = ["# How often nothing is called something, and what intervals hold", ""]
    out.append(
        f"{found['models']} randomly initialised models of {found['shapes']}, {found['draws']}"
        " draws of random weights each. A head is called special where p is below 5 % over all"
        " heads and metrics judged together (Bonferroni) and the difference is large. `p alone`"
        " leaves the size out: that is the test whose nominal rate is 5 %. In brackets the exact"
        " binomial 95 % interval."
    )
    out += ["", "| metrics | models | any head called special | p alone | by shape |"]
    out.append("|---|---|---|---|---|")
    for x in found["familywise"]:
        shapes = ", ".join(f"{k} {v}" for k, v in x["by_shape"].items())
        out.append(
            f"| {x['of']} | {x['models']} | {x['claimed']} ({x['claimed'] / x['models']:.1%})"
            f" [{x['low']:.1%}, {x['high']:.1%}] | {x['p_alone']}"
            f" ({x['p_alone'] / x['models']:.1%})"
            f" [{between(x['p_alone'], x['models'])[0]:.1%},"
            f" {between(x['p_alone'], x['models'])[1]:.1%}] | {shapes} |"
        )
    out += ["", "## Coverage of 95 % intervals", ""]
    out.append(
        "Scores from many independent sets of prompts; the truth is the mean over all sets."
        ' Intervals are chosen by the kind of values; *shown* is the share that is not "too few",'
        " *covered* the share of the shown ones that hold the truth, *t* the same of t intervals"
        " over clusters, which are always shown. ± is the standard error over sets. Heads whose"
        " score never moves are left out."
    )
    out += ["", "| model | metric | n | clusters | shown | covered | t | heads | sets |"]
    out.append("|---|---|---|---|---|---|---|---|---|")
    for x in found["coverage"]:
        out.append(
            f"| {x['model']} | `{x['metric']}` | {x['n']:g} | {x['clusters']:g}"
            f" | {x['shown']:.0%} | {with_error(x, 'chosen')} | {with_error(x, 't')}"
            f" | {x['heads']} | {x['sets']} |"
        )
    out += ["", "## Power", "", "| model | metric | known heads | claimed |", "|---|---|---|---|"]
    out += [
        f"| {x['model']} | `{x['metric']}` | {x['known']} | {x['claimed']} |"
        for x in found["power"]
    ]
    out += ["", "## Each metric on random weights", ""]
    out.append(
        "What a head scores (median, and the middle 95 % of heads over all models), and how often"
        " its p is below 5 % and 1 %."
    )
    out += ["", "| metric | scores | p < 0.05 | p < 0.01 |", "|---|---|---|---|"]
    for label, x in found["chance"].items():
        p = found["p_below"][label]
        out.append(
            f"| `{label}` | {x['median']:g} ({x['low']:g} to {x['high']:g}) | {p['0.05']:.1%}"
            f" | {p['0.01']:.1%} |"
        )
    out += ["", f"{found['made']}"]
    return "\n".join(out) + "\n"


def with_error(row: dict[str, Any], name: str) -> str:
    """Format a share with its standard error; nothing where no interval is shown."""
    return "" if row[name] is None else f"{row[name]:.3f} ± {row[name + '_error']:.3f}"
