"""Smallest sets and what matters, beside the known circuits: precision, recall and coverage.

Each circuit is found on the default number of pairs; the share that its set is said to keep is
compared with the share on many fresh pairs. In a model of a folder no circuit is known: only the
share is measured there, and how many random sets keep as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import interp
from interp.circuits.find import find_circuit
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.result import Circuit
from interp.circuits.set_evaluation import random_set
from interp.circuits.tasks import make_contrast
from interp.core.intervals import share_interval

PAIRS, FRESH, SEEDS, OF_TRAINED = 64, 500, 2, 20
OF_FOLDER, RANDOM = 40, 10  # seeds of a model in a folder, and random sets for each circuit


class Known(NamedTuple):
    """Nodes and edges that count, and those of the circuit."""

    nodes: set[str]
    true_nodes: set[str]
    edges: set[tuple[str, str]]
    true_edges: set[tuple[str, str]]


def set_row(source: str, name: str, seed: int, known: Known, named: Any) -> dict[str, Any]:
    """Find a circuit, and compare its set and what matters with the known one."""
    found, _, shares = _found(source, name, seed)
    chosen, rows = found.chosen, found.tables["matters"]
    assert chosen is not None
    matter = {row["node"] for row in rows if row["node"]}
    matter_edges = {named((row["from"], row["to"])) for row in rows if row["from"]}
    answers = {
        "set nodes": ({*chosen.nodes} & known.nodes, known.true_nodes),
        "set edges": ({named(e) for e in chosen.edges} & known.edges, known.true_edges),
        "matters nodes": (matter & known.nodes, known.true_nodes),
        "matters edges": (matter_edges & known.edges, known.true_edges),
    }
    return {
        "share": shares,
        "set": {k: [len(a & b), len(a), len(b)] for k, (a, b) in answers.items() if b},
    }


def folder_row(source: str, name: str, seed: int) -> dict[str, Any]:
    """Find a circuit, and compare its set with random ones on fresh pairs."""
    found, runs, shares = _found(source, name, seed)
    chosen, rng = found.chosen, np.random.default_rng([seed, 13])
    assert chosen is not None
    masks = [runs.only(random_set(runs.graph, chosen.nodes, rng)) for _ in range(RANDOM)]
    random = runs.kept(masks, "random sets").mean(1) / runs.gap
    size = [len(chosen.nodes), len(chosen.edges)]
    return {"share": shares, "set": {}, "size": size, "random": random.tolist()}


def _found(source: str, name: str, seed: int) -> tuple[Circuit, PatchedRuns, list[float]]:
    """Find a circuit, and return its set's stated share and interval, and the share elsewhere."""
    model = interp.load(source)
    found = find_circuit(model, make_contrast(model, name, n=PAIRS, seed=seed))
    chosen = found.chosen
    assert chosen is not None
    runs = PatchedRuns(model, make_contrast(model, name, n=FRESH, seed=500 + seed))
    share = runs.share(runs.graph.mask(chosen.edges), "fresh pairs").value
    return found, runs, [*chosen.share[:3], share]


def sets_table(rows: Sequence[dict[str, Any]], classes: Sequence[str]) -> str:
    """Format precision and recall by class of models, and how often intervals hold the share."""
    text = (
        f"Circuits found by the default on {PAIRS} pairs, {OF_TRAINED} seeds for each task of the"
        f" trained models, up to {OF_FOLDER} for the model in a folder and {SEEDS} for the others:"
        " the smallest set"
        " that keeps 80 %, and the nodes and edges that matter (2 % of the gap or more; Holm's"
        " correction). Precision: how many that are named belong to the known circuit; recall: how"
        " many of the circuit are named. A set that keeps 80 % may do without a part of the"
        " circuit, and where heads stand in for each other it names one of them. In trained models"
        " some nodes outside the stated circuit have more than 2 % of the gap, and count as wrong"
        " here; in the folder no circuit is known. Share: mean over"
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
    if folder := [row for row in rows if "random" in row]:
        text += f"\n{_folder_table(folder)}"
    return text


def _folder_table(rows: Sequence[dict[str, Any]]) -> str:
    """Format, by task of a model of a folder, what sets keep beside random ones."""
    draws = len(rows[0]["random"])
    text = (
        f"The model in a folder, by task: sizes and shares are means over circuits; random: {draws}"
        " sets for each circuit with as many heads in each layer and as many MLPs, with all edges"
        " between them, and how many of these keep as much as the set.\n\n"
        "| model | task | circuits | nodes | edges | said | fresh | covered | random | as much |\n"
        + 10 * "|---"
        + "|\n"
    )
    for at in dict.fromkeys((row["model"], row["task"]) for row in rows):
        mine = [row for row in rows if (row["model"], row["task"]) == at]
        said, low, high, fresh = np.array([row["share"] for row in mine]).T
        random = np.array([row["random"] for row in mine])
        inside = int(((low <= fresh) & (fresh <= high)).sum())
        size = " | ".join(f"{x:.1f}" for x in np.mean([row["size"] for row in mine], axis=0))
        text += f"| {' | '.join(at)} | {len(mine)} | {size} | {said.mean():.2f}"
        text += f" | {fresh.mean():.2f} | {inside} | {random.mean():.2f}"
        text += f" | {int((random >= fresh[:, None]).sum())} of {random.size} |\n"
    return text


KEYS = ("set nodes", "set edges", "matters nodes", "matters edges")


def _two(counts: list[list[int]]) -> str:
    """Return mean precision and recall over circuits."""
    if not counts:
        return "- | -"
    precision = [hit / n for hit, n, _ in counts if n]
    recall = [hit / true for hit, _, true in counts]
    return f"{np.mean(precision):.2f} | {np.mean(recall):.2f}" if precision else "- | 0.00"
