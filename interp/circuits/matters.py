"""Nodes and edges that matter for a task: those whose removal changes it, corrected for all tried.

A node matters if the task changes without it alone, without it while the head that stands in for it
is patched, or without the whole group of heads that stand in for each other. Effects alone are
tested on all pairs, those that a search chose on held-out pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.columns import with_noun
from interp.core.standard_errors import standard_error, t_test_p
from interp.core.statistics import holm
from interp.core.ties import reaches

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.circuits.groups import HeadGroup
    from interp.circuits.methods._measured_nodes import MeasuredNodes
    from interp.circuits.nodes import Edge
    from interp.circuits.patched_runs import PatchedRuns
    from interp.circuits.result import Circuit

Array = np.ndarray
LEAST = 0.02  # smallest effect that matters, as a share of the gap
LEVEL = 0.05


def what_matters(
    nodes: MeasuredNodes, groups: Sequence[HeadGroup], edges: Mapping[Edge, Array]
) -> list[dict[str, Any]]:
    """Return a row per node and edge that matters, with its effect and corrected p value."""
    runs = nodes.runs
    joint = {x: group for group in groups for x in group.heads}
    tests: list[tuple[str, str, Array]] = [(x, "", lost) for x, lost in nodes.alone.items()]
    for name, on, effect in zip(nodes.names, nodes.on, nodes.conditional, strict=True):
        if name in joint:
            tests.append((name, on, joint[name].joint[runs.held]))
        elif on:
            tests.append((name, on, effect[runs.held]))
    known: dict[str, dict[str, Any]] = {}
    p = _corrected(runs, [effect for _, _, effect in tests])
    for (name, on, effect), value in zip(tests, p, strict=True):
        if value < LEVEL and name not in known:
            row = {"node": name, "from": "", "to": "", "without": on}
            known[name] = row | {"effect": float(effect.mean()), "p": float(value)}
    rows = [known[name] for name in nodes.names if name in known]
    p = _corrected(runs, list(edges.values()))
    for ((a, b), effect), value in zip(edges.items(), p, strict=True):
        if value < LEVEL:
            row = {"node": "", "from": a, "to": b, "without": ""}
            rows.append(row | {"effect": float(effect.mean()), "p": float(value)})
    return rows


def _corrected(runs: PatchedRuns, effects: Sequence[Array]) -> Float[Array, " test"]:
    """Test each effect over pairs, or over clusters where there are many; 1 for those too small."""
    p = np.ones(len(effects))
    for i, effect in enumerate(effects):
        every = len(effect) == len(runs.task)
        labels = runs.task.clusters if runs.task.many_clusters else None
        if labels is not None and not every:
            labels = [labels[k] for k in runs.held]
        number = len(effect) if labels is None else len(set(labels))
        if number > 1:
            error = standard_error(effect[None], labels)[0]
            p[i] = float(t_test_p(effect.mean(), error, number - 1))
    large = [bool(reaches(abs(x.mean()), LEAST * abs(runs.gap))) for x in effects]
    return np.where(large, holm(p), 1.0)


def number_that_matters(found: Circuit) -> str:
    """Say how many heads and MLPs matter; empty where that was not tested."""
    if "matters" not in found.tables:
        return ""
    names = [str(row["node"]) for row in found.tables["matters"] if row["node"]]
    kinds = {"head": "L", "MLP": "m"}
    numbers = {kind: sum(x[0] == first for x in names) for kind, first in kinds.items()}
    counts = [with_noun(number, kind) for kind, number in numbers.items() if number]
    if not counts:
        return "no head or MLP is shown to matter"
    return f"{' and '.join(counts)} {'matters' if sum(numbers.values()) == 1 else 'matter'}"


def both_answers(found: Circuit) -> str:
    """Say what matters and what suffices, in one line."""
    told, chosen = [number_that_matters(found)], found.chosen
    if chosen is not None:
        value, low, high, _ = (100 * x for x in chosen.share)
        size = f"{with_noun(len(chosen.nodes), 'node')} and "
        size += f"{'' if chosen.separated else 'all '}{with_noun(len(chosen.edges), 'edge')}"
        on = "not used to find them" if chosen.apart else "that chose them"
        on += f", {chosen.shared}" if chosen.apart and chosen.shared else ""
        told.append(
            f"{size} keep {value:.0f} % [{low:.0f}, {high:.0f}] on {chosen.pairs} pairs {on}"
        )
    return "; ".join(filter(None, told))
