"""Coverage of 95 % intervals: how often they hold the exact value, over repeated seeds.

    python benchmarks/interval_coverage.py [--runs 400] [--cache FOLDER]

The games of interval_games.py: 8 heads of two models, 256 coalitions, each known on a population of
random-token prompts, so that Shapley values, ablations, interactions and pruning curves are known
exactly. A run draws a seed (and, where the error is over prompts, prompts from the population),
estimates, and counts the share of intervals that hold the exact value. The share is a mean over
runs, its error their standard error: intervals of one run are not independent, runs are. 95 % is
met where it lies within two of its own standard errors, or above (conservative).

Writes benchmarks/interval_coverage.md and .json.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from interval_games import GAMES, Array, TableGame, table_of
from interval_kinds import kinds_page, measured_kinds

from interp.causal.pairs import exact_interactions, sampled_interactions
from interp.causal.pruning.folds import fold_orders, folds, loop_areas, swapped
from interp.causal.pruning.result import PruningCurve
from interp.causal.shapley_values.banzhaf import banzhaf_exact, banzhaf_sampled
from interp.causal.shapley_values.exact import exact_values
from interp.causal.shapley_values.permutations import permutation_values
from interp.causal.shapley_values.surrogate import surrogate_values
from interp.core.intervals import around, mean_intervals
from interp.core.standard_errors import standard_error
from interp.core.statistics import bootstrap_interval

HERE = Path(__file__).parent
NORMAL = 1.959964
LOOPS, DRAWS = 20, 20  # of a pruning curve, as by default
CHOSEN = (1, 2, 4, 5)  # players whose interactions are sampled
Hits = Callable[[int], dict[str, Array]]
"""For a seed: whether each interval, by each way of making it, holds the exact value; NaN where
none is shown."""


def inside(ends: Array, truth: Array) -> Array:
    """Whether each exact value lies in its interval, to the rounding of what is exact anyway."""
    low, high = np.asarray(ends).T
    slack = 1e-9 * (1 + np.abs(truth))
    return np.where(np.isnan(low), np.nan, (low - slack <= truth) & (truth <= high + slack))


def normal(score: Array, sem: Array) -> Array:
    """The interval that 1.96 standard errors make."""
    return np.stack([score - NORMAL * sem, score + NORMAL * sem], -1)


# --- the error over samples: the prompts are fixed ----------------------------------------------


def over_samples(table: Array) -> dict[str, Hits]:
    """What is sampled, on the mean of the population as one prompt."""
    game = TableGame(table.mean(1, keepdims=True), int(math.log2(len(table))))
    n = len(game)
    phi, beta = exact_values(game).score, banzhaf_exact(game).score
    pair = 2 * (n - 1)

    def solved(truth: Array, solve: Callable[[int], Any]) -> Hits:
        def hits(seed: int) -> dict[str, Array]:
            found = solve(seed)
            return {
                "t": inside(found.sampling_interval, truth),
                "1.96 errors": inside(normal(found.score, found.sampling_sem), truth),
            }

        return hits

    target = 0.15 * float(np.abs(phi).max())
    chosen = list(CHOSEN)
    between = exact_interactions(game, chosen)[0].mean(1)

    def pairs(samples: int) -> Hits:
        def hits(seed: int) -> dict[str, Array]:
            per, sem, count = sampled_interactions(
                game, chosen, max_evaluations=samples * 2 * 2 ** len(chosen), seed=seed
            )
            assert count == samples * 2 * 2 ** len(chosen)
            score = per.mean(1)
            return {
                "t": inside(around(score, [(sem, samples - 1.0)]), between),
                "1.96 errors": inside(normal(score, sem), between),
            }

        return hits

    found: dict[str, Hits] = {}
    for k in (2, 4, 8, 16):
        found[f"Shapley, {k} pairs of permutations"] = solved(
            phi, lambda seed, k=k: permutation_values(game, max_evaluations=k * pair, seed=seed)
        )
    found["Shapley, permutations until a target error"] = solved(
        phi, lambda seed: permutation_values(game, target_sem=target, seed=seed)
    )
    found["Banzhaf, 32 pairs of coalitions"] = solved(
        beta, lambda seed: banzhaf_sampled(game, max_evaluations=64, seed=seed)
    )
    for k in (8, 32, 64):
        found[f"interactions, {k} pairs of backgrounds"] = pairs(k)
    found["Shapley, surrogate of 96 coalitions"] = solved(
        phi, lambda seed: surrogate_values(game, max_evaluations=96, seed=seed)
    )
    return found


# --- the error over prompts ---------------------------------------------------------------------


def over_prompts(table: Array) -> dict[str, Hits]:
    """Ablation and Shapley values of so many prompts, drawn from the population."""
    n = int(math.log2(len(table)))
    single = [len(table) - 1 - 2**k for k in range(n)][::-1]
    change = table[-1] - table[single]  # [player, prompt]
    ablated = change.mean(1)
    phi = exact_values(TableGame(table, n)).score
    found: dict[str, Hits] = {}

    def drawn(size: int, seed: int) -> Array:
        return np.random.default_rng([seed, size]).integers(table.shape[1], size=size)

    def ablation(size: int) -> Hits:
        def hits(seed: int) -> dict[str, Array]:
            mine = change[:, drawn(size, seed)]
            errors = [(standard_error(mine), size - 1.0)]
            return {
                "by kind": inside(mean_intervals(mine).ends, ablated),
                "t": inside(around(mine.mean(1), errors), ablated),
                "percentile": inside(bootstrap_interval(mine, draws=500, seed=seed), ablated),
            }

        return hits

    def shapley(size: int) -> Hits:
        def hits(seed: int) -> dict[str, Array]:
            game = TableGame(table[:, drawn(size, seed)], n)
            got = permutation_values(game, max_evaluations=8 * 2 * (n - 1), seed=seed)
            sem = standard_error(got.per_prompt)
            both = [(sem, size - 1.0), (got.sampling_sem, got.sampling_df)]
            return {
                "by kind": inside(mean_intervals(got.per_prompt, others=both[1:]).ends, phi),
                "t": inside(around(got.score, both), phi),
                "1.96 errors": inside(normal(got.score, np.hypot(sem, got.sampling_sem)), phi),
                "percentile": inside(bootstrap_interval(got.per_prompt, draws=500, seed=seed), phi),
            }

        return hits

    for size in (4, 8, 16, 64):
        found[f"ablation, {size} prompts"] = ablation(size)
        found[f"Shapley, 8 pairs of permutations, {size} prompts"] = shapley(size)
    return found


# --- what pruning by a ranking gains over random orders -----------------------------------------


def along(table: Array, orders: list[list[int]]) -> Array:
    """`[order, count, prompt]` while players leave in each order."""
    n = int(math.log2(len(table)))
    place = 2 ** np.arange(n)[::-1]
    index = [[len(table) - 1 - int(place[o[:k]].sum()) for k in range(n + 1)] for o in orders]
    return table[np.array(index)]


def advantage(paths: Array, everyone: Array) -> Array:
    """Of paths `[.., count, prompt]` over the mean of all random orders `[count, prompt]`."""
    share = np.linspace(0, 1, paths.shape[-2])
    return np.trapezoid(paths, share, axis=-2) - np.trapezoid(everyone, share, axis=0)


def pruned(table: Array, size: int, repeats: int) -> tuple[Hits, dict[str, list[float]]]:
    """A leave-one-out ranking, judged on its own prompts and by halves.

    The exact value of the held-out number is what rankings made on half of so many prompts gain on
    the whole population, over many draws; of the same-prompts number, what a ranking made on all of
    them gains there. Returns besides, for the report, the gains: printed and exact.
    """
    n = int(math.log2(len(table)))
    rng = np.random.default_rng(1)
    single = [len(table) - 1 - 2**k for k in range(n)][::-1]
    change = table[-1] - table[single]
    out = np.array([bin(len(table) - 1 - i).count("1") for i in range(len(table))])
    everyone = np.stack([table[out == k].mean(0) for k in range(n + 1)])

    def order(which: Array) -> list[int]:
        return np.argsort(change[:, which].mean(1), kind="stable").tolist()

    def gain(which: Array) -> float:
        return float(advantage(along(table, [order(which)]), everyone).mean())

    def many(count: int) -> float:
        each = [gain(rng.integers(table.shape[1], size=count)) for _ in range(repeats)]
        return float(np.mean(each))

    low, high = size // 2, size - size // 2
    truth, full = (many(low) * high + many(high) * low) / size, many(size)
    seen: dict[str, list[float]] = {"same": [], "held": []}
    seen |= {"exact all": [full], "exact half": [truth]}

    def hits(seed: int) -> dict[str, Array]:
        mine = np.random.default_rng([seed, size, 2]).integers(table.shape[1], size=size)
        some, values = change[:, mine], table[:, mine]
        every = folds(size, LOOPS, seed)

        def rank(weight: Array) -> list[int]:
            return np.argsort(some @ weight / weight.sum(), kind="stable").tolist()

        draws = np.random.default_rng(seed)
        randoms = [draws.permutation(n).tolist() for _ in range(DRAWS)]
        own = along(values, [rank(np.ones(size)), *fold_orders(every, rank)])
        random = along(values, randoms)
        share = np.linspace(0, 1, n + 1)
        loops = loop_areas(every[1:], own[3:], random, share, seed)
        curve = PruningCurve(
            "leave-one-out",
            np.arange(n + 1),
            tuple(map(str, range(n))),
            own[0],
            random,
            n,
            "least-first",
            "1",
            True,
            seed,
            {},
            swapped(every[0], own[1], own[2]),
            tuple(loops),
        )
        held = curve.held_out_area
        assert held is not None
        seen["same"].append(curve.area.value)
        seen["held"].append(held.value)
        given = PruningCurve(
            "leave-one-out",
            curve.counts,
            curve.removed,
            own[0],
            random,
            n,
            "least-first",
            "1",
            True,
            seed,
            {},
            swapped(every[0], own[1], own[2]),
        ).held_out_area
        assert given is not None
        return {
            "whole loop": inside(np.array([held[1:]]), np.array([truth])),
            "held out, rankings as given": inside(np.array([given[1:]]), np.array([truth])),
            "same prompts": inside(np.array([curve.area[1:]]), np.array([full])),
        }

    return hits, seen


# --- counting -----------------------------------------------------------------------------------


def counted(hits: Hits, runs: int) -> dict[str, tuple[float | None, float | None, float]]:
    """Coverage of the shown intervals of each kind, its standard error, and the share shown."""
    every: dict[str, list[Array]] = {}
    for seed in range(runs):
        for name, hit in hits(seed).items():
            every.setdefault(name, []).append(np.asarray(hit, dtype=float))
    out: dict[str, tuple[float | None, float | None, float]] = {}
    for name, each in every.items():
        shown = [x[~np.isnan(x)] for x in each]
        x = [y.mean() for y in shown if len(y)]
        share = sum(map(len, shown)) / sum(map(len, each))
        error = float(np.std(x, ddof=1) / math.sqrt(len(x))) if len(x) > 1 else None
        out[name] = float(np.mean(x)) if x else None, error, share
    return out


def measured(name: str, runs: int, cache: Path) -> dict[str, Any]:
    """All of one game: coverages, and what pruning gains."""
    table = table_of(name, 400, cache)
    rows: list[dict[str, Any]] = []
    gains: list[dict[str, Any]] = []

    def count(group: str, of: str, hits: Hits) -> None:
        few = max(20, runs // 4) if "surrogate" in of else runs  # a fit each
        started = time.perf_counter()
        for way, (share, error, shown) in counted(hits, few).items():
            rows.append(
                {
                    "group": group,
                    "of": of,
                    "way": way,
                    "coverage": share,
                    "sem": error,
                    "shown": shown,
                    "runs": few,
                }
            )
        print(name, of, rows[-1]["coverage"], f"{time.perf_counter() - started:.0f} s", flush=True)

    for of, hits in over_samples(table).items():
        count("over samples, prompts fixed", of, hits)
    for of, hits in over_prompts(table).items():
        count("over prompts", of, hits)
    for size in (4, 8, 24, 96):
        hits, seen = pruned(table, size, 2000)
        count("pruning by leave-one-out", f"advantage over random orders, {size} prompts", hits)
        gains.append({"prompts": size} | {k: float(np.mean(x)) for k, x in seen.items()})
    return {"game": name, "heads": GAMES[name], "rows": rows, "gains": gains}


_SHOWN = {
    "by kind": "by kind",
    "t": "t",
    "1.96 errors": "±1.96 errors",
    "percentile": "percentiles",
    "whole loop": "t, whole loop",
    "held out, rankings as given": "t, rankings as given",
    "same prompts": "t, same prompts",
}


def reported(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of what the package reports: the first way of each interval."""
    return list({(r["group"], r["of"]): r for r in reversed(rows)}.values())[::-1]


def covered(row: dict[str, Any]) -> str:
    """Return the coverage with its error, and the share of shown intervals where some are not."""
    if not row["shown"]:
        return "none shown"
    part = "" if row["shown"] == 1 else f", {row['shown']:.0%} shown"
    return f"{row['coverage']:.3f} ± {row['sem']:.3f}{part}"


def report(found: list[dict[str, Any]], kinds: list[dict[str, Any]]) -> str:
    """The tables as Markdown."""
    out = [
        "# Coverage of 95 % intervals",
        "",
        *kinds_page(kinds),
        "## Games of heads",
        "",
        "How often an interval holds the exact value, over repeated seeds: games of 8 heads whose",
        "256 coalitions are all known on 400 prompts (`bundled:induction`, `planted:backup`; loss",
        "on the second copy of random tokens). ± is the standard error over runs. In bold what the",
        "package reports; the other columns are what the same numbers would give otherwise. Of",
        "intervals that are not always shown, the share that is shown stands behind.",
        "Written by `python benchmarks/interval_coverage.py`.",
        "",
    ]
    for game in found:
        out += [f"### {game['game']}", ""]
        for group in dict.fromkeys(r["group"] for r in game["rows"]):
            mine = [r for r in game["rows"] if r["group"] == group]
            ways = list(dict.fromkeys(r["way"] for r in mine))
            head = [f"**{_SHOWN[w]}**" if at == 0 else _SHOWN[w] for at, w in enumerate(ways)]
            out += [f"| {group} | runs | {' | '.join(head)} |", "|---|---|" + "---|" * len(ways)]
            for of in dict.fromkeys(r["of"] for r in mine):
                by = {r["way"]: r for r in mine if r["of"] == of}
                cells = [covered(by[w]) if w in by else "" for w in ways]
                runs = next(iter(by.values()))["runs"]
                out.append(f"| {of} | {runs} | {' | '.join(cells)} |")
            out.append("")
        out += [
            "Mean advantage of the ranking over random orders (nats/token): as printed for prompts",
            "it was ranked on and for held-out halves, and what such rankings gain exactly on the",
            "whole population (made on all prompts, on half of them).",
            "",
            "| prompts | same prompts | exact, of all | held out | exact, of half |",
            "|---|---|---|---|---|",
        ]
        for g in game["gains"]:
            cells = (g["same"], g["exact all"], g["held"], g["exact half"])
            out.append(f"| {g['prompts']} | " + " | ".join(f"{x:.3f}" for x in cells) + " |")
        out.append("")
    first = [r for game in found for r in reported(game["rows"]) if r["shown"]]
    below = [r for r in first if r["coverage"] + 2 * r["sem"] < 0.95]
    out.append(
        f"Of {len(first)} reported kinds of interval {len(first) - len(below)} hold the exact "
        "value 95 % of the time or more, to within two standard errors of their own."
    )
    if below:
        out += ["Below it:", ""]
        out += [f"- {r['of']}: {r['coverage']:.3f} ± {r['sem']:.3f}" for r in below]
    return "\n".join(out) + "\n"


def main() -> None:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--draws", type=int, default=4000, help="of each kind of values")
    parser.add_argument(
        "--only", choices=("kinds", "games"), help="measure this part, keep the others"
    )
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "coverage")
    asked = parser.parse_args()
    kept = HERE / "interval_coverage.json"
    before = json.loads(kept.read_text()) if asked.only else {}
    kinds = before["kinds"] if asked.only == "games" else measured_kinds(asked.draws)
    if asked.only == "kinds":
        found = before["games"]
    else:
        found = [measured(name, asked.runs, asked.cache) for name in GAMES]
    kept.write_text(json.dumps({"kinds": kinds, "games": found}, indent=1) + "\n")
    (HERE / "interval_coverage.md").write_text(report(found, kinds))


if __name__ == "__main__":
    main()
