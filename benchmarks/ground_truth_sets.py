"""Smallest sets and what matters, beside the known circuits: precision, recall and coverage.

Each circuit is found on the default number of pairs; the share that its set is said to keep is
compared with the share on many fresh pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import interp
from interp.circuits.find import find_circuit
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.tasks import make_contrast
from interp.core.intervals import share_interval

PAIRS, FRESH, SEEDS, OF_TRAINED = 64, 500, 2, 20


class Known(NamedTuple):
    """Nodes and edges that count, and those of the circuit."""

    nodes: set[str]
    true_nodes: set[str]
    edges: set[tuple[str, str]]
    true_edges: set[tuple[str, str]]


def set_row(source: str, name: str, seed: int, known: Known, named: Any) -> dict[str, Any]:
    """Find a circuit, and compare its set and what matters with the known one."""
    model = interp.load(source)
    task = make_contrast(model, name, n=PAIRS, seed=seed)
    found = find_circuit(model, task)
    chosen, rows = found.chosen, found.tables["matters"]
    assert chosen is not None
    runs = PatchedRuns(model, make_contrast(model, name, n=FRESH, seed=500 + seed))
    share = runs.share(runs.graph.mask(chosen.edges), "fresh pairs").value
    matter = {row["node"] for row in rows if row["node"]}
    matter_edges = {named((row["from"], row["to"])) for row in rows if row["from"]}
    answers = {
        "set nodes": ({*chosen.nodes} & known.nodes, known.true_nodes),
        "set edges": ({named(e) for e in chosen.edges} & known.edges, known.true_edges),
        "matters nodes": (matter & known.nodes, known.true_nodes),
        "matters edges": (matter_edges & known.edges, known.true_edges),
    }
    return {
        "share": [*chosen.share[:3], share],
        "set": {k: [len(a & b), len(a), len(b)] for k, (a, b) in answers.items() if b},
    }


def sets_table(rows: Sequence[dict[str, Any]], classes: Sequence[str]) -> str:
    """Format precision and recall by class of models, and how often intervals hold the share."""
    text = (
        f"Circuits found by the default on {PAIRS} pairs, {OF_TRAINED} seeds for each task of the"
        f" trained models and {SEEDS} for the others: the smallest set"
        " that keeps 80 %, and the nodes and edges that matter (2 % of the gap or more; Holm's"
        " correction). Precision: how many that are named belong to the known circuit; recall: how"
        " many of the circuit are named. A set that keeps 80 % may do without a part of the"
        " circuit, and where heads stand in for each other it names one of them. In trained models"
        " some nodes outside the stated circuit have more than 2 % of the gap, and count as wrong"
        " here. Share: mean over"
        f" circuits of what the set keeps on {FRESH} fresh pairs. Covered: circuits whose stated"
        " 95 % interval holds that share (Wilson interval).\n\n"
        "| models | circuits | set: nodes | recall | edges | recall | matters: nodes | recall"
        " | edges | recall | share | covered |\n" + 12 * "|---" + "|\n"
    )
    for kind in classes:
        mine = [row for row in rows if row["of"] == kind and "note" not in row]
        cells = [_two([r["set"][k] for r in mine if k in r["set"]]) for k in KEYS]
        inside = sum(r["share"][1] - 1e-6 <= r["share"][3] <= r["share"][2] + 1e-6 for r in mine)
        if mine:
            low, high = share_interval(inside, len(mine))
            share = float(np.mean([r["share"][3] for r in mine]))
            text += f"| {kind} | {len(mine)} | {' | '.join(cells)} | {share:.2f}"
            text += f" | {inside / len(mine):.2f} [{low:.2f}, {high:.2f}] |\n"
    return text


KEYS = ("set nodes", "set edges", "matters nodes", "matters edges")


def _two(counts: list[list[int]]) -> str:
    """Return mean precision and recall over circuits."""
    if not counts:
        return "- | -"
    precision = [hit / n for hit, n, _ in counts if n]
    recall = [hit / true for hit, _, true in counts]
    return f"{np.mean(precision):.2f} | {np.mean(recall):.2f}" if precision else "- | 0.00"
