"""Sections of the page on the reliability of the numbers, from files of the benchmarks.

`docs/tables.py` writes them into docs/trust.md.

Every figure on the page is read from benchmarks/*.json; none is typed by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOMINAL = 0.95
SHARES = "chosen", "t"
TOO_OFTEN = 0.02  # share of heads of random models with p below 0.01
GROUPS = ("geometry", "categories", "cache")
BENCHMARKS = HERE.parent / "benchmarks"


def read(name: str) -> Any:
    """Read the results of one benchmark."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))


def agreement() -> Iterator[str]:
    """Yield the comparison with independent computations."""
    kept = read("agreement")
    yield "## Against independent computations"
    yield (
        "The same number computed twice: by the public function, and by code that shares nothing "
        "with the package. *Largest difference* is over all values; *spread* is the standard "
        "deviation of the compared numbers, so a difference far below the spread is rounding. Tiny "
        "random models with sharpened attention, so that a wrong head, row or position would show "
        f"as a difference of 0.1 to 1. {_versions(kept['about'])} "
        "Command: `python benchmarks/agreement.py`."
    )
    head = ("number", "compared with", "values", "largest difference", "spread", "unit")
    yield table(
        head,
        [
            (
                r["what"],
                r["against"],
                f"{r['values']:,}",
                f"{r['largest']:.1e}",
                f"{r['spread']:.2g}",
                r["unit"],
            )
            for r in kept["rows"]
        ],
    )


def libraries() -> Iterator[str]:
    """Yield the comparison with other libraries, and of flows with other solvers."""
    kept = read("sources")
    yield "## Against other libraries"
    yield (
        "Scores of one model held as a Hugging Face model and through each other source; the "
        "difference is from the first. Command: `python benchmarks/sources.py`."
    )
    rows = [(name, f"{r['largest_difference']:.1e}") for name, r in kept["rows"].items()]
    yield table(("source", "largest difference of any score"), rows)
    worst: dict[str, float] = {}
    for row in read("flow")["solvers"]:
        worst[row["solver"]] = max(worst.get(row["solver"], 0.0), row["largest_difference"])
    yield (
        "Attention flow was computed by other solvers of maximum flow as well; the largest "
        "difference of a flow, as a share of the output: "
        + "; ".join(f"{name} {off:.0e}" for name, off in worst.items() if "own" not in name)
        + ". Command: `python benchmarks/flow.py`."
    )


def claims() -> Iterator[str]:
    """Yield false findings on random weights, and the share of known heads that are found."""
    kept = read("calibration")
    yield "## False findings on random weights"
    yield (
        f"Randomly initialised models of {kept['shapes']}, scored as `interp score` scores them, "
        f"with {kept['draws']} draws of random weights as the null. A false finding is any head of "
        "a model that the report lists as special; the nominal rate is 5 % of models. In brackets "
        "the exact binomial 95 % interval. Commands: `python benchmarks/calibration.py`, and for "
        f"the single groups `python benchmarks/calibration_groups.py {'|'.join(GROUPS)}`."
    )
    parts = [r for r in kept["familywise"] if r["of"] != "with -m geometry"]
    groups = [r for name in GROUPS for r in read(f"calibration_{name}")["familywise"]]
    yield table(
        ("metrics", "models", "models with a false finding", "p below the level, of any size"),
        [
            (
                r["of"],
                r["models"],
                f"{r['claimed']} ({r['claimed'] / r['models']:.1%}) "
                f"[{r['low']:.1%}, {r['high']:.1%}]",
                f"{r['p_alone']} ({r['p_alone'] / r['models']:.1%})",
            )
            for r in parts + groups
        ],
    )
    far = [name for name, rate in kept["p_below"].items() if rate["0.01"] > TOO_OFTEN]
    if far:
        yield (
            f"p below 1 % on more than {TOO_OFTEN:.0%} of random heads: "
            + ", ".join(f"`{name}`" for name in far)
            + "."
        )
    known, found = (sum(r[k] for r in kept["power"]) for k in ("known", "claimed"))
    yield (
        f"The same tests find {found} of {known} heads with a known role (planted models "
        "and `bundled:induction`)."
    )


def single_claims() -> Iterator[str]:
    """Yield how often claims of single analyses are made where nothing is there."""
    kept = read("claims")
    yield "## Claims of single analyses"
    yield (
        "Each analysis on made data or random models in which the effect does not exist, and the "
        "draws in which it says that something is there; the nominal share is 5 %. In brackets the "
        "exact binomial 95 % interval. Command: `python benchmarks/claims.py`."
    )
    yield table(
        ("call", "claim", "where nothing is there", "draws", "claimed"),
        [
            (
                f"`{r['call']}`",
                r["claim"],
                r["nothing"],
                r["draws"],
                f"{r['hits']} ({r['rate']:.1%}) [{r['low']:.1%}, {r['high']:.1%}]",
            )
            for r in kept["rows"]
            if r["kind"] == "claim"
        ],
    )
    yield (
        "Share of their 95 % intervals that contain the truth, with Wilson's interval of a share "
        "of as many draws."
    )
    yield table(
        ("call", "interval", "truth", "draws", "covered"),
        [
            (
                f"`{r['call']}`",
                r["claim"],
                r["nothing"],
                r["draws"],
                f"{r['coverage']:.3f} [{r['low']:.3f}, {r['high']:.3f}]",
            )
            for r in kept["rows"]
            if r["kind"] == "interval"
        ],
    )
    worse = [r for r in kept["rows"] if r["off"]]
    if worse:
        yield (
            "Worse than nominal by more than two standard errors: "
            + "; ".join(
                f"`{r['call']}`, {r['claim']} ({r['nothing']})"
                + (f": {r['why']}" if r["why"] else "")
                for r in worse
            )
            + "."
        )


def intervals() -> Iterator[str]:
    """Yield the coverage of 95 % intervals."""
    yield "## Intervals"
    yield (
        "Share of 95 % intervals that contain the true value, with the standard error of that "
        "share. "
        "Scores of heads: the truth is the mean over many sets of prompts. Intervals are over "
        "clusters of values that share a needle, a period or an order, and chosen by the kind of "
        'values; *shown* is the share of scores that have one (the others say "too few", and '
        "why), *t* the coverage of t intervals of the same values, which are always shown. "
        "Command: `python benchmarks/calibration.py --only coverage`."
    )
    rows = read("calibration")["coverage"]
    yield table(
        ("model", "metric", "n", "clusters", "shown", "covered", "t"),
        [
            (
                r["model"],
                f"`{r['metric']}`",
                f"{r['n']:g}",
                f"{r['clusters']:g}",
                f"{r['shown']:.0%}",
                *("" if r[x] is None else f"{r[x]:.3f} ± {r[x + '_error']:.3f}" for x in SHARES),
            )
            for r in rows
        ],
    )
    short = [
        f"`{r['metric']}` on {r['model']}"
        for r in rows
        if r["chosen"] is not None and r["chosen"] + 2 * r["chosen_error"] < NOMINAL
    ]
    if short:
        yield f"Below 95 % by more than two standard errors: {', '.join(short)}."


def kinds_of_values() -> Iterator[str]:
    """Yield the coverage of intervals of means by the kind of values."""
    rows = read("interval_coverage")["kinds"]
    yield "## Intervals by the kind of values"
    yield (
        "Intervals of scores, of ablations and other importances, of differences between models "
        "and of similarities of heads are chosen by the kind of values, and not shown where they "
        "cannot reach 95 % (the result "
        f'says "too few", and why). Independent values, {rows[0]["runs"]:,} draws each: the share '
        "of intervals that are shown, of the shown ones that contain the true mean, and of t "
        "intervals, which are always shown, that contain it. Command: "
        "`python benchmarks/interval_coverage.py`; `benchmarks/interval_coverage.md` has clusters "
        "and widths."
    )
    counts = sorted({r["n"] for r in rows})
    lines = []
    for kind in dict.fromkeys(r["kind"] for r in rows):
        own = {r["n"]: r for r in rows if r["kind"] == kind and not r["clustered"]}
        lines.append((kind, *(_shown_and_covered(own[n]) for n in counts)))
    yield table(("values", *(f"n = {n}: shown, covered, t" for n in counts)), lines)


def _shown_and_covered(row: Mapping[str, Any]) -> str:
    if row["shown"] < 0.01:  # of some draws, too few for a share
        return f"{'under 1 %' if row['shown'] else 'none'}, t {row['t']:.2f}"
    return f"{row['shown']:.0%}, {row['covered']:.3f}, t {row['t']:.2f}"


def causal_intervals() -> Iterator[str]:
    """Yield the coverage of intervals of causal scores, sampled values and pruning curves."""
    games = read("interval_coverage")["games"]
    yield "## Intervals of causal scores"
    yield (
        "Share of 95 % intervals that contain the exact value, over repeated runs on games in "
        "which the value of every set of heads is known. Only the interval that the package "
        "reports is listed, and of those that it does not always show the share that it shows; "
        "`benchmarks/interval_coverage.md` has the alternatives. Command: "
        "`python benchmarks/interval_coverage.py`."
    )
    rows = []
    for game in games:
        first = {(r["group"], r["of"]): r for r in reversed(game["rows"])}
        for r in reversed(first.values()):
            said = "none shown", "not shown"
            if r["shown"]:
                part = "" if r["shown"] == 1 else f", {r['shown']:.0%} shown"
                short = r["coverage"] + 2 * r["sem"] < NOMINAL
                said = f"{r['coverage']:.3f} ± {r['sem']:.3f}{part}", "no" if short else "yes"
            rows.append((game["game"], r["of"], r["group"], r["runs"], *said))
    yield table(("game", "interval of", "repeated", "runs", "covered", "nominal or more"), rows)
    short = [f"{row[1]} on {row[0]}" for row in rows if row[-1] == "no"]
    yield (
        f"Of {sum(row[-1] != 'not shown' for row in rows)} kinds that are shown, {len(short)} "
        "contain the exact value less often than stated: "
        + "; ".join(short)
        + ". Use more prompts or samples there."
    )


SECTIONS: Sequence[Callable[[], Iterator[str]]] = (
    agreement,
    libraries,
    claims,
    single_claims,
    intervals,
    kinds_of_values,
    causal_intervals,
)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Format a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def page() -> str:
    """Return every section, as Markdown."""
    return "\n\n".join(part for section in SECTIONS for part in section())


def _versions(about: Mapping[str, Any]) -> str:
    return f"({', '.join(f'{name} {value}' for name, value in about.items())}.)"
