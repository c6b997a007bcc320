"""The page of `benchmarks.ground_truth`, from its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks.ground_truth_roles import role_table
from benchmarks.ground_truth_sets import sets_table
from interp.circuits.gap import LEAST_EFFECT, LEAST_OF_TWO
from interp.core.intervals import share_interval
from interp.core.statistics import percentile_interval

CLASSES = ("trained", "programs", "planted", "joined programs")
UNKNOWN = "circuit unknown"
OF_SETS = (*CLASSES, UNKNOWN)
DEFAULT = "verified_edges"
ABOUT = """# Ground truth: circuit methods on models whose circuit is known

Made by `python -m benchmarks.ground_truth`, which goes on where it stopped. The models are those of
`interp list models`; how they were made, and how sure their circuits are, is in the
[guide](../docs/guides/known_circuits.md).

- AUROC: the probability that a node (edge) of the circuit has a larger score, in absolute value,
  than one outside; ties count half. It is exact over all nodes that count: heads and MLPs whose
  output differs between the two sides of some pair. Others cannot be mistaken for the circuit, and
  would raise the AUROC of every method.
- Edges count where the truth covers their kind. In trained models, whose inputs (queries, keys,
  values) are not known apart, an edge is a pair of nodes.
- The mean is over tasks, each the mean of 2 seeds of pairs; in brackets its 95 % bootstrap interval
  over tasks. "Worst" is the task with the lowest AUROC. "At 1.00" has the number of tasks that were
  measured: compare the means of two methods only where it is the same.
- "Beyond chance": tasks in which fewer than 5 % of 500 random permutations of the circuit reach the
  AUROC of its nodes, on both seeds. A circuit of one node among four cannot: its p is at least .25.
- `verified_edges`, the default, scores the edges between the nodes of its set, which keeps 80 % of
  the behaviour unless told otherwise (`faithful`); other edges have no score and rank last.
- Passes and seconds are medians over tasks; seconds on one processor core of a busy
  machine, for all pairs: only their order of magnitude says something.
- CPR and CMD (MIB; 1 and 0 are best) are on 16 pairs that the method did not see: the top shares of
  its ranking are kept and the rest is corrupted. Those of edges are integrated as MIB's code does,
  from a share of .001. CPR can exceed 1 where what is left out hurts the task.
- Methods with the name of a package in front are that package's own code, run in an environment of
  its own (`benchmarks/peers`), on one seed of pairs; nodes of its edge methods are sums of edges.
- `attribution_patching` with `qk_fix` and `grad_drop` is AtP* (Kramar et al. 2024), which scores
  nodes only; its bound on what it may have missed is not computed.
"""


def ground_truth_page(rows: Sequence[dict[str, Any]], cases: Sequence[str]) -> str:
    """Format the page.

    Args:
        rows: what was measured.
        cases: every model and task, as `MODEL TASK`.
    """
    parts = [ABOUT]
    for kind in CLASSES:
        mine = [row for row in rows if row["class"] == kind]
        if mine:
            parts.append(f"## {kind.capitalize()}\n\n{_by_method(mine)}")
    parts.append(f"## The default method by task\n\n{_by_task(rows)}")
    if sets := [row for row in rows if row["class"] == "sets"]:
        parts.append(f"## The smallest set, and what matters\n\n{sets_table(sets, OF_SETS)}")
    if heads := [row for row in rows if row["class"] == "roles"]:
        parts.append(f"## Heads by role\n\n{role_table(heads)}")
    if null := [row for row in rows if row["class"] == "null"]:
        parts.append(f"## False circuits\n\n{_null_table(null)}")
    where: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "note" in row:
            # an error often starts with the name of the model, which is the place
            note = row["note"].removeprefix(f"{row['model']}: ")
            place = f"{row['model']}, {row['task']}"
            if place not in (found := where.setdefault((row["method"], note), [])):
                found.append(place)
    notes = [
        f"- {method} on {places[0]}{f' and {len(places) - 1} more' if places[1:] else ''}: {note}"
        for (method, note), places in sorted(where.items())
    ]
    if notes:
        parts.append("## What was not measured, and why\n\n" + "\n".join(notes) + "\n")
    measured = {f"{r['model']} {r['task']}" for r in rows}
    missing = [case for case in cases if case not in measured]
    if missing:
        parts.append("## Not run yet\n\n" + "\n".join(f"- {case}" for case in missing) + "\n")
    return "\n".join(parts)


def _null_table(rows: Sequence[dict[str, Any]]) -> str:
    text = (
        "A circuit is only looked for where clean prompts do better than corrupted ones:"
        f" significantly (by chance in 2.3 % of cases; {rows[0]['pairs']} pairs), and by at least"
        f" {LEAST_EFFECT:g} standard deviations between prompts ({LEAST_OF_TWO:g} where all pairs"
        " ask for the same two tokens). The second condition is for models"
        " before training: their embeddings reach the logits directly, so they have a small but"
        " real difference, which is significant if the pairs are many or alike (`brackets`: two"
        " answers; 24 % of 200 such models). Both of its bounds were chosen on the untrained models"
        " of this table; of untrained models of other seeds 7 of 400 are accepted (1.8 %). Wilson"
        " 95 % intervals.\n\n"
        "| null | tasks | cases | significant | accepted | share |\n|---|---|---|---|---|---|\n"
    )
    told = {
        "untrained": "the GPT-2s before their training",
        "exchanged": "trained models, answers of each pair exchanged at random",
    }
    for null, what in told.items():
        mine = [row for row in rows if row["model"] == null]
        n, k = sum(row["times"] for row in mine), sum(row["accepted"] for row in mine)
        low, high = share_interval(k, n)
        share = f"{k / max(n, 1):.1%} [{low:.1%}, {high:.1%}]"
        alone = sum(row["significant"] for row in mine)
        text += f"| {what} | {len(mine)} | {n} | {alone} | {k} | {share} |\n"
    return text


def _by_method(rows: Sequence[dict[str, Any]]) -> str:
    tasks = {(r["model"], r["task"]) for r in rows}
    pairs = sorted({r["pairs"] for r in rows})
    head = (
        f"{len(tasks)} tasks of {len({m for m, _ in tasks})} models,"
        f" {' or '.join(map(str, pairs))} pairs for each seed.\n\n"
        "| method | nodes: AUROC | worst | at 1.00 | beyond chance | edges: AUROC | worst"
        " | at 1.00 | forward and backward passes |"
    )
    more = [r for r in rows if "curves" in r]
    if more:
        head += " heads: CPR | CMD | edges: CPR | CMD | seconds |"
    head += "\n" + (14 if more else 9) * "|---" + "|\n"
    lines = []
    for method in dict.fromkeys(r["method"] for r in rows):
        mine = [r for r in rows if r["method"] == method and "note" not in r]
        name = f"**{method}**" if method == DEFAULT else method
        nodes, edges = _areas(mine, "head"), _areas(mine, "edge")
        level = "edge" if edges else "head"
        lines.append(
            (
                -np.mean(list(nodes.values())) if nodes else 0.0,
                f"| {name} | {_mean(nodes)} | {_worst(nodes)} | {_perfect(nodes)} | {_null(mine)}"
                f" | {_mean(edges)} | {_worst(edges)} | {_perfect(edges)}"
                f" | {_cost(mine, level, lambda x: x['forwards'] + x['backwards'], '.0f')} |"
                + (_curves(mine, level) if more else ""),
            )
        )
    return head + "\n".join(line for _, line in sorted(lines)) + "\n" + _time(rows)


def _time(rows: Sequence[dict[str, Any]]) -> str:
    """Say how long the default takes beside exact patching and the fastest peer."""
    by: dict[tuple[bool, str], list[float]] = {}
    for row in rows:
        if "seconds" in row.get("edge", {}):
            peer = bool(row.get("peer"))
            by.setdefault((peer, row["method"]), []).append(row["edge"]["seconds"])
    peers = {name: median(x) for (peer, name), x in by.items() if peer}
    own = {name: median(x) for (peer, name), x in by.items() if not peer}
    if not peers or not {DEFAULT, "exact_patching"} <= own.keys():
        return ""
    fastest = min(peers, key=lambda name: peers[name])
    return (
        f"\nEdges of one task take {own[DEFAULT]:.1f} s by `{DEFAULT}`,"
        f" {own['exact_patching']:.1f} s by `exact_patching` and {peers[fastest]:.1f} s by the"
        f" fastest peer, {fastest} (medians over tasks and seeds). On models as small as these,"
        " patching every edge is cheap; the passes above grow with the square of the number of"
        " nodes for `exact_patching`, and with the number of nodes for the default.\n"
    )


def _areas(rows: Sequence[dict[str, Any]], level: str) -> dict[str, float]:
    """AUROC by task, the mean over seeds."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.get(level, {}).get("auroc") is not None:
            found.setdefault(f"{row['model']} {row['task']}", []).append(row[level]["auroc"])
    return {task: float(np.mean(values)) for task, values in found.items()}


def _mean(areas: dict[str, float]) -> str:
    if not areas:
        return "-"
    values = np.array(list(areas.values()))
    rng = np.random.default_rng(0)
    drawn = values[rng.integers(0, len(values), (2000, len(values)))].mean(1)
    low, high = percentile_interval(drawn)
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def _worst(areas: dict[str, float]) -> str:
    return f"{min(areas.values()):.2f}" if areas else "-"


def _perfect(areas: dict[str, float]) -> str:
    return f"{sum(x > 1 - 1e-9 for x in areas.values())} of {len(areas)}" if areas else "-"


def _null(rows: Sequence[dict[str, Any]]) -> str:
    found: dict[str, list[bool]] = {}
    for row in rows:
        if "p" in row.get("head", {}):
            found.setdefault(f"{row['model']} {row['task']}", []).append(row["head"]["p"] < 0.05)
    return f"{sum(map(all, found.values()))} of {len(found)}" if found else "-"


def _cost(
    rows: Sequence[dict[str, Any]], level: str, of: Callable[[dict[str, Any]], float], form: str
) -> str:
    values = [of(row[level]) for row in rows if level in row]
    return format(median(values), form) if values else "-"


def _curves(rows: Sequence[dict[str, Any]], level: str) -> str:
    """Return the columns of the rankings on held-out pairs, and of seconds."""
    mine = [r for r in rows if "curves" in r]
    seconds = _cost(mine, level, lambda x: x["seconds"], ".2f")
    return f" {_curve(mine, 'head')} | {_curve(mine, 'edge')} | {seconds} |"


def _curve(rows: Sequence[dict[str, Any]], level: str) -> str:
    """Return the mean CPR and CMD over tasks and seeds."""
    found = [r["curves"][level] for r in rows if level in r.get("curves", {})]
    return " | ".join(f"{x:.3f}" for x in np.mean(found, 0)) if found else "- | -"


def _by_task(rows: Sequence[dict[str, Any]]) -> str:
    head = (
        "With the 95 % bootstrap interval over pairs, of the seed with the lower AUROC. In"
        " planted:selective_induction 1 or 2 of the 12 edges have no effect on any of the 16 pairs,"
        " by exact patching too: few pairs need each combination of lags.\n\n"
        "| model | task | nodes | in the circuit | AUROC | p | edges | in the circuit | AUROC |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
    )
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["method"] == DEFAULT and "head" in row:
            found.setdefault((row["model"], row["task"]), []).append(row)
    lines: list[str] = []
    for (model, task), mine in found.items():
        node, edge = (
            min((r[level] for r in mine if level in r), key=lambda x: x["auroc"] or 0, default={})
            for level in ("head", "edge")
        )
        p = f"{node['p']:.3f}" if "p" in node else "-"
        lines.append(
            f"| {model} | {task} | {node['of']} | {node['true']} | {_one(node)} | {p}"
            f" | {edge.get('of', '-')} | {edge.get('true', '-')} | {_one(edge)} |"
        )
    return head + "\n".join(lines) + "\n"


def _one(found: dict[str, Any]) -> str:
    if found.get("auroc") is None:
        return "-"
    interval = f" [{found['low']:.2f}, {found['high']:.2f}]" if "low" in found else ""
    return f"{found['auroc']:.3f}{interval}"
