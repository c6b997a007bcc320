"""Evaluation of a circuit by `interp circuit`: its set, its first nodes, sizes and edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError, UnreadableAttention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interp.circuits.contrast import ContrastTask
    from interp.circuits.edge_evaluation import EdgeEvaluation
    from interp.circuits.head_evaluation import Evaluation
    from interp.circuits.plan import Plan
    from interp.circuits.result import Circuit
    from interp.circuits.set_evaluation import SetEvaluation
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model

DEFAULT = "verified_edges"
EDGE_ORDERS = 3  # random orders of edges at most: their passes are the slowest


def evaluated(
    model: Model,
    found: Circuit,
    start: Plan,
    no_set: str,
    *,
    top: int,
    maps: tuple[str, ...],
    ablation: str,
    reference: Mapping[str, Any],
    n_random: int,
    **kept: Any,
) -> tuple[Evaluation, dict[str, Any], str]:
    """Evaluate a circuit on other pairs, the set that it names first."""
    from interp.circuits.evaluation import evaluate_circuit
    from interp.circuits.patched_runs import shared_runs

    plan, seed = start.after(found), start.seed
    fresh = plan.fresh(model)
    doubt = _doubt(model, fresh)
    with shared_runs():
        if doubt:  # shares of no difference say nothing
            of_set: SetEvaluation | str = "these pairs do not show the behaviour"
        else:
            of_set = _set(model, found, fresh, no_set, seed, n_random, **kept)
        patched = _patched(model, found, fresh, top, **kept)
        measured = evaluate_circuit(
            model,
            found,
            fresh,
            ablation=ablation,
            n_random=n_random,
            seed=seed,
            **reference,
            **kept,
        )
    parts = {
        "held_out": plan.summary(len(fresh), measured.seen),
        "of_set": of_set,
        "patched": patched,
        "edges": _edges(model, found, fresh, n_random, **kept),
        "maps": _maps(model, fresh, maps, **kept),
    }
    return measured, parts, doubt


def with_set(
    model: Model, found: Circuit, plan: Plan, faithful: float, size: int, **kept: Any
) -> tuple[Circuit, str]:
    """Mark the smallest set in a circuit of a method that has none, or return why there is none."""
    from interp.circuits.smallest import smallest_set

    if found.chosen is not None:
        return found, ""
    try:
        pairs = plan.pairs(model)
        return smallest_set(model, found, pairs, faithful=faithful, size=size, **kept), ""
    except (OptionError, UnreadableAttention) as error:
        return found, str(error)


def _set(
    model: Model,
    found: Circuit,
    fresh: ContrastTask,
    why: str,
    seed: int,
    n_random: int,
    **kept: Any,
) -> SetEvaluation | str:
    """Measure the smallest set on other pairs, or return the reason why that is impossible."""
    from interp.circuits.set_evaluation import evaluate_set

    if found.chosen is None:
        return why
    try:
        return evaluate_set(model, found, fresh, seed=seed, n_random=n_random, **kept)
    except (OptionError, UnreadableAttention) as error:
        return str(error)


def _maps(
    model: Model, fresh: ContrastTask, sites: tuple[str, ...], **kept: Any
) -> list[ResultRows]:
    """Patch layers at the task's roles, or at positions where it names none."""
    from interp.circuits.position_map import patching_map

    by = "role" if any(fresh.roles) else "position"
    return [patching_map(model, fresh, site, by=by, **kept) for site in dict.fromkeys(sites)]


def _doubt(model: Model, fresh: ContrastTask) -> str:
    """Return a note if the evaluation pairs do not show the behaviour."""
    try:
        fresh.gap(model)
    except OptionError as error:
        return f"  note: on the evaluation pairs: {error}\n"
    return ""


def _patched(
    model: Model, found: Circuit, fresh: ContrastTask, top: int, **kept: Any
) -> ResultRows | str:
    """Patch the listed nodes on other pairs, or return the reason why that is impossible."""
    from interp.circuits.patched import patch_first

    try:
        return patch_first(model, found, fresh, top, **kept)
    except (
        OptionError,
        UnreadableAttention,
    ) as error:  # a model whose components do not add up to its residual stream
        return str(error)


def _edges(
    model: Model, found: Circuit, fresh: ContrastTask, n_random: int, **kept: Any
) -> EdgeEvaluation | str | None:
    """Measure the first edges of a whole ranking, or return the reason; None if there are none."""
    from interp.circuits.edge_evaluation import evaluate_edges

    if not found.edges or found.method == DEFAULT:
        return None  # it measures the edges of its set, which is evaluated, and orders no others
    try:
        return evaluate_edges(model, found, fresh, n_random=min(n_random, EDGE_ORDERS), **kept)
    except OptionError as error:  # codes scores pairs of heads, which are not edges of the graph
        return f"not evaluated: {error}"
