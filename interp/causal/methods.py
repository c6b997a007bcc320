"""Importance methods by name, as `name` or `name:option=value,...` on the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import interp.causal as room
from interp.causal.ablation import AblationNull
from interp.causal.comparison.questions import METHODS
from interp.core.declaration import parse_name
from interp.core.errors import OptionError, UnknownName
from interp.core.option import Option, options_of
from interp.core.protocols import Progress
from interp.core.steps import finishing

if TYPE_CHECKING:
    from interp.causal.importance import Importance
    from interp.causal.task import Task
    from interp.model.model import Model

GRADIENT = {
    "michel_token_abs": "token_abs",
    "michel_example_abs": "example_abs",
    "michel_batch_abs": "batch_abs",
    "gate_gradient": "signed",
}
_CALLS = {"ablation": "leave_one_out"}  # methods whose function has another name


@finishing()
def importances(
    model: Model,
    task: Task,
    methods: Sequence[str],
    *,
    kind: str = "zero",
    null: AblationNull = "none",
    seed: int = 0,
    progress: Progress | None = None,
    **game: Any,
) -> dict[str, Importance]:
    """Compute scores of all players by several methods, on the same prompts and replacements.

    All gradient scores come from one backward pass.
    """
    asked = [parse(text) for text in methods]
    texts = [text for text, _, _ in asked]
    if len(set(texts)) < len(texts):
        twice = next(t for t in texts if texts.count(t) > 1)
        raise OptionError(f"{twice} is given twice; name each method once")
    plain = {name for _, name, options in asked if name in GRADIENT and not options}
    shared: dict[str, Importance] = {}
    if plain:
        forms = tuple(GRADIENT[name] for name in plain)
        memory = {k: v for k, v in game.items() if k != "resume"}
        from interp.causal.gradient import gradient_scores

        shared = gradient_scores(
            model, task, kind=kind, forms=forms, null=null, seed=seed, **memory
        )
    by_method = {}
    for text, name, options in asked:
        if name in plain and not options:
            by_method[text] = shared[GRADIENT[name]]
        else:
            given = {"kind": kind, "null": null, "seed": seed, "progress": progress} | game
            by_method[text] = _call(model, task, name, given, options)
    return by_method


def parse(text: str) -> tuple[str, str, dict[str, Any]]:
    """Parse a written method into label, name and options."""
    name, given = parse_name(text)
    if name not in METHODS:
        raise UnknownName("importance", name, METHODS)
    known = _options(name)
    for option in given:
        if option not in known:
            raise UnknownName(f"option of {name}", option, known or ["(none)"])
    return text, name, {option: known[option].parse(value) for option, value in given.items()}


def _function(name: str) -> Callable[..., Any]:
    """Return the function of `interp.causal` that computes an importance."""
    if name in GRADIENT:
        from interp.causal.gradient import gradient_scores

        return gradient_scores
    return getattr(room, _CALLS.get(name, name))


def _options(name: str) -> dict[str, Option]:
    """Return the options allowed after the name; all others apply to the whole run."""
    options = options_of(_function(name))
    return {n: o for n, o in options.items() if n not in ("progress", "announce", "null", "kind")}


def _call(
    model: Model, task: Task, name: str, given: dict[str, Any], options: dict[str, Any]
) -> Importance:
    function = _function(name)
    if name in GRADIENT:
        form = GRADIENT[name]
        given = {k: v for k, v in given.items() if k not in ("progress", "resume")}
        return function(model, task, forms=(form,), **(given | options))[form]
    known = inspect.signature(function).parameters
    if "progress" not in known:
        given = {k: v for k, v in given.items() if k not in ("progress", "resume")}
    if name == "patching_gradient":  # its kind is always resample
        given = {k: v for k, v in given.items() if k not in ("kind", "reference")}
    if "null" not in known:
        given.pop("null")
    return function(model, task, **(given | options))
