"""One call for every way to find a circuit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.circuit.declare import Discovery, Found, Level

if TYPE_CHECKING:
    from interp.circuit.contrast import ContrastTask
    from interp.circuit.result import Circuit
    from interp.model.model import Model

DEFAULT = "screen_verify"


def score_nodes(
    model: Model,
    task: ContrastTask,
    method: str | Discovery = DEFAULT,
    level: Level = "head",
    **options: Any,
) -> Found:
    """What a method gives, as it gives it; `find_circuit` makes a circuit of it.

    Raises:
        UnknownName: no such method or option.
        OptionError: a level that it does not have, or a model that does not do the task.
    """
    if isinstance(method, str):
        from interp.catalogue import finder

        method = finder(method)
    task.gap(model)
    return method(model, task, level, **options)


def find_circuit(
    model: Model,
    task: ContrastTask,
    method: str | Discovery = DEFAULT,
    level: Level = "head",
    **options: Any,
) -> Circuit:
    """The circuit of a model for a task, by one of the methods of the room `interp.discovery`.

    Raises:
        UnknownName: no such method or option.
        OptionError: a level that it does not have, or a model that does not do the task.
    """
    from interp.circuit.result import Circuit

    found = score_nodes(model, task, method, level, **options)
    name = method if isinstance(method, str) else method.name
    return Circuit.of(model, task, name, level, options, found)
