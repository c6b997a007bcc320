"""Contract of a circuit method: one score per node, levels as declared, the model untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.declaration import LEVELS, Discovery
from interp.circuits.find import score_nodes
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError
from interp.core.registry import CIRCUIT_METHODS
from interp.model.model_argument import one_model
from interp.testing.contract import (
    ContractError,
    check_declared_options,
    check_docstring,
    check_example,
    model_unchanged,
    require_kept,
)

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

MODEL = "planted:bystander"
"""Model and task of the checks unless others are given."""


def check_circuit_method(
    method: str | Discovery,
    model: Any = MODEL,
    task: ContrastTask | None = None,
    **options: Any,
) -> None:
    """Check that a circuit method keeps the contract of these methods.

    Its docstring says what it scores and for what it is unsuitable. It gives every node one finite
    score, none below 0 unless it says that they are signed, states their unit, leaves the model as
    it was, and refuses a level that it does not declare.

    Args:
        method: a name with options if any, the path of a file, or a declared method.
        model: a model that does the task, or what `load` accepts.
        task: pairs of prompts; by default those of `planted:bystander`.
        **options: options of the method, such as fewer steps.

    Raises:
        ContractError: the contract is broken; the sentence says how.
    """
    declared, _ = CIRCUIT_METHODS.given(method, {})
    model = one_model(model)
    check_docstring(declared)
    check_declared_options(declared)
    check_example(declared)
    check_levels(declared)
    task = task or make_contrast(model, MODEL, n=8)
    check_node_scores(method, model, task, **options)


def check_node_scores(
    method: str | Discovery, model: Model, task: ContrastTask, **options: Any
) -> None:
    """Check that each node has one finite score of the stated sign, and that nothing changes."""
    name = CIRCUIT_METHODS.given(method, {})[0].name
    with model_unchanged(model, name):
        result = score_nodes(model, task, method, **options)
    n = len(result.nodes)
    require_kept(
        result.per_prompt.shape[0] == n == len(set(result.nodes)),
        f"{name} must score every node once; it gives {result.per_prompt.shape[0]} rows for {n}"
        f" nodes, of which {len(set(result.nodes))} differ",
    )
    scored = result.per_prompt[~np.isin(result.nodes, result.unmeasured)]
    require_kept(
        bool(np.isfinite(scored).all()),
        f"{name} must give finite scores, and name the nodes without one in `unmeasured`",
    )
    require_kept(bool(result.unit), f"{name} must state the unit of its scores")
    require_kept(
        result.signed or bool((scored >= -1e-9).all()),
        f"{name} states signed=False and must give no score below 0; the lowest is"
        f" {scored.min():.3g}",
    )


def check_levels(method: str | Discovery) -> None:
    """Check that declared levels are taken and the others refused."""
    declared, _ = CIRCUIT_METHODS.given(method, {})
    for level in LEVELS:
        try:
            declared.check(level, {})
        except OptionError as error:
            taken, why = False, str(error)
        else:
            taken, why = True, "it is taken"
        if taken != (level in declared.levels):
            raise ContractError(
                f"{declared.name} must take the levels that it declares"
                f" ({', '.join(declared.levels)}) and no other; {level}: {why}"
            )
