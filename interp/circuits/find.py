"""One call for every way to find a circuit."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from interp.circuits.declaration import Discovery, Found, Level, declared_circuit_method
from interp.circuits.steps import Progress, following, step
from interp.circuits.tasks import contrast_of
from interp.core.registry import CIRCUIT_METHODS
from interp.model.given import takes_model

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.result import Circuit
    from interp.model.model import Model

DEFAULT = "screen_verify"


def score_nodes(
    model: Model,
    task: ContrastTask,
    method: str | Discovery = DEFAULT,
    level: Level = "head",
    *,
    ledger: str | os.PathLike | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Found:
    """What a method gives, as it gives it; `find_circuit` makes a circuit of it.

    Args:
        ledger: a folder that keeps finished steps: the same run finds them there again, to the
            last bit, and goes on where it was broken off.
        progress: told what runs, how much of it is done and how much there is.
        options: of the method.

    Raises:
        UnknownName: no such method or option.
        OptionError: a level that it does not have, or a model that does not do the task; with a
            ledger, heads that are edited, or a method that cannot be told from others.
        StoreError: the ledger cannot be written or read.
    """
    found = find_method(method)
    found.check(level, options)
    store = None
    if ledger is not None:
        from interp.circuits.identity import model_content, of_method, of_task
        from interp.circuits.kept_steps import Kept

        told = model_content(model) | of_task(model, task) | of_method(found, level, options)
        store = Kept(ledger, told)
    with following(store, progress):
        step("gap", lambda: task.gap(model))
        return Found(**step("found", lambda: _plain(found(model, task, level, **options))))


def _plain(found: Found) -> dict[str, Any]:
    told = {f.name: getattr(found, f.name) for f in fields(found)}
    return told | {"tables": dict(found.tables)}


def find_method(method: str | Discovery) -> Discovery:
    """A method by its name, in which hyphens are as good as underscores.

    Raises:
        UnknownName: no such method.
    """
    if not isinstance(method, str):
        return declared_circuit_method(method)
    return CIRCUIT_METHODS.load(method if method.endswith(".py") else method.replace("-", "_"))


@takes_model
def find_circuit(
    model: Model,
    task: ContrastTask | str,
    method: str | Discovery = DEFAULT,
    level: Level = "head",
    *,
    ledger: str | os.PathLike | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Circuit:
    """The circuit of a model for a task, by one of the methods of `interp.circuits.methods`.

    Args:
        task: pairs of prompts, or the name of a task as `make_contrast` takes it.
        ledger: a folder that keeps finished steps: the same run finds them there again, to the
            last bit, and goes on where it was broken off.
        progress: told what runs, how much of it is done and how much there is.
        options: of the method.

    Raises:
        UnknownName: no such method or option.
        OptionError: a level that it does not have, or a model that does not do the task; with a
            ledger, heads that are edited, or a method that cannot be told from others.
        StoreError: the ledger cannot be written or read.
    """
    from interp.circuits.result import Circuit

    task = contrast_of(model, task)
    way = find_method(method)
    found = score_nodes(model, task, way, level, ledger=ledger, progress=progress, **options)
    return Circuit.of(model, task, way.name, level, options, found)
