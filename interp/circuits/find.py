"""Entry point to all circuit methods, and to circuits that were found before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.circuits.declaration import Discovery, Found, Level
from interp.circuits.steps import following, step
from interp.circuits.tasks.named import contrast_of, is_file
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.registry import CIRCUIT_METHODS
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.result import Circuit
    from interp.model.model import Model

DEFAULT = "verified_edges"


def score_nodes(
    model: Model,
    task: ContrastTask,
    method: str | Discovery = DEFAULT,
    level: Level | None = None,
    *,
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Found:
    """Run a method and return its result unchanged; `find_circuit` makes a circuit of it."""
    way, options = find_method(method, options)
    level = level or way.levels[0]  # type: ignore[assignment]
    way.check(str(level), options)
    store = None
    if resume is not None:
        from interp.circuits.identity import model_content, of_method, of_task
        from interp.circuits.stored_steps import Kept

        stated = model_content(model) | of_task(model, task) | of_method(way, str(level), options)
        store = Kept(resume, stated)
    with following(store, progress):
        step("gap", lambda: task.gap(model))
        return Found(**step("found", lambda: _plain(way(model, task, level, **options))))


def _plain(found: Found) -> dict[str, Any]:
    values = {f.name: getattr(found, f.name) for f in fields(found)}
    return values | {"tables": dict(found.tables)}


def find_method(
    method: str | Discovery, options: Mapping[str, Any] | None = None
) -> tuple[Discovery, dict[str, Any]]:
    """Return a method by its name, and the options given in the name and beside it.

    Hyphens and underscores of the name are equivalent.
    """
    if isinstance(method, str):
        name, colon, rest = method.partition(":")
        method = (name if name.endswith(".py") else name.replace("-", "_")) + colon + rest
    return CIRCUIT_METHODS.given(method, options or {})


@takes_model
def find_circuit(
    model: Model,
    task: ContrastTask | str,
    method: str | Discovery = DEFAULT,
    level: Level | None = None,
    *,
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Circuit:
    """Find the circuit of a model for a task, by one of the methods of `interp.circuits.methods`.

    Args:
        model: The model.
        task: Pairs of prompts, or the name of a task as `make_contrast` takes it.
        method: The method, or its name with options if any (`"acdc:threshold=0.2"`).
        level: "head" or "edge"; by default the first of the method's levels.
        resume: A folder that stores finished steps: the same run reads them back bit for bit, and
            an interrupted run resumes.
        progress: Called with the name of the current work, how much is done and how much there is.
        **options: Options of the method.

    Raises:
        UnknownName: There is no such method or option.
        OptionError: The method does not have this level, or the model does not do the task; with
            `resume`, heads are edited, or the method cannot be distinguished from others.
        StoreError: The folder of finished steps cannot be written or read.
    """
    from interp.circuits.result import Circuit

    task = contrast_of(model, task)
    way, options = find_method(method, options)
    level = level or way.levels[0]  # type: ignore[assignment]
    result = score_nodes(model, task, way, level, resume=resume, progress=progress, **options)
    return Circuit.of(model, task, way.name, str(level), options, result)


def asked_method(
    text: str, faithful: float, size: int | None, max_evaluations: int | None
) -> tuple[Discovery, dict[str, Any]]:
    """Return a method and its options, with those that are given beside its name."""
    way, options = find_method(text)
    has = way.options
    if max_evaluations is not None and "max_evaluations" not in has:
        raise OptionError(
            f"{way.name} takes no --max-evaluations; omit it, or use verified_edges or acdc"
        )
    asked = {"faithful": faithful, "size": size, "max_evaluations": max_evaluations}
    more = {k: v for k, v in asked.items() if v is not None and k in has}
    return way, more | options


def stored_circuit(path: Path, model: Model, task: str) -> Circuit:
    """Read an existing circuit, if it belongs to this model and task."""
    from interp.circuits.result import Circuit

    circuit = Circuit.from_json(path) if path.suffix == ".json" else Circuit.from_toml(path)
    circuit.require(model)
    name = Path(task).stem if is_file(task) else task
    if not circuit.model:  # a file of MIB, which names neither
        circuit = replace(circuit, model=model.name, task=name)
    if circuit.task != name:
        raise OptionError(
            f"{path} is a circuit for {circuit.task}, not for {name}; give another circuit"
        )
    return circuit
