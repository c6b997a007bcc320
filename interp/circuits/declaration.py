"""Declaration of circuit methods, from which the Python call, the command and its help follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from interp.core.declaration import Bound, Declaration
from interp.core.errors import NonFiniteError, OptionError

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

Array = np.ndarray
Level = Literal["head", "edge"]
LEVELS = ("head", "edge")


@dataclass(frozen=True, eq=False)
class Found:
    """Result of a circuit method, before it is made a `Circuit`.

    Args:
        nodes: Names of the scored nodes, such as `L0H3`, `mlp0`, `embed`.
        per_prompt: Score of each node on every pair, positive where the node helps the task, in
            `unit`; methods that score all prompts at once have one column.
        edges: (writer, reader) names, at the level "edge".
        edges_per_prompt: Scores of the edges per pair.
        forwards, backwards: Number of passes over all prompts.
        signed: Whether a score below zero means that the node works against the task.
        notes: Remarks that the reader needs to interpret the scores.
        tables: Further results by name, such as controls; each a list of rows.
        columns: Meaning of the columns of `per_prompt`, where they are not pairs of prompts.
        measured: How the scores were measured: one text for all nodes, or one text for each.
        unmeasured: Nodes without a score, whose rows are NaN.
        estimate: Estimate of each node's score by gradients, NaN where there is none; nodes are
            never ordered by it.
        edges_measured: By edge, how its score was measured; empty where all are measured as the
            nodes are.
        conditional: Effect of a node while another head, named in `conditional_on`, is ablated, on
            every pair; rows of NaN where that was not measured. Never part of `per_prompt`.
    """

    nodes: tuple[str, ...]
    per_prompt: Float[Array, "node prompt"]
    unit: str
    edges: tuple[tuple[str, str], ...] = ()
    edges_per_prompt: Float[Array, "edge prompt"] | None = None
    forwards: float = 0.0
    backwards: float = 0.0
    signed: bool = True
    notes: tuple[str, ...] = ()
    tables: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    columns: str = "pairs"
    measured: str | tuple[str, ...] = ""
    unmeasured: tuple[str, ...] = ()
    conditional: Float[Array, "node prompt"] | None = None
    conditional_on: tuple[str, ...] = ()
    edges_measured: tuple[str, ...] = ()
    estimate: Float[Array, " node"] | None = None

    def __post_init__(self) -> None:
        n, conditional = len(self.nodes), self.conditional
        fits = {
            "per_prompt": self.per_prompt.shape[0] == n,
            "edges_per_prompt": self.edges_per_prompt is None
            or self.edges_per_prompt.shape[0] == len(self.edges),
            "conditional": conditional is None or conditional.shape == self.per_prompt.shape,
            "conditional_on": conditional is None or len(self.conditional_on) == n,
            "edges_measured": len(self.edges_measured) in (0, len(self.edges)),
            "estimate": self.estimate is None or self.estimate.shape == (n,),
            "measured": isinstance(self.measured, str) or len(self.measured) == n,
        }
        wrong = [name for name, well in fits.items() if not well]
        if wrong:
            raise OptionError(
                f"{', '.join(wrong)} of a circuit method's result: one row is needed for each of"
                f" the {n} nodes and {len(self.edges)} edges"
            )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Discovery(Declaration):
    """A declared circuit method; calling it scores the nodes or edges of a model on a task."""

    kind: str = "discovery"
    levels: tuple[str, ...]

    def check(self, level: str, options: Mapping[str, Any]) -> Bound[Discovery]:
        """Check a level and options; see `__call__` for the errors it raises."""
        if level not in self.levels:
            raise OptionError(
                f"{self.name} scores {' and '.join(f'{x}s' for x in self.levels)}, not {level}s"
            )
        return self.bind(**options)

    def __call__(
        self, model: Model, task: ContrastTask, level: Level | None = None, **options: Any
    ) -> Found:
        """Score the nodes, or edges, of a model on a task."""
        level = level or self.levels[0]  # type: ignore[assignment]
        result = self.apply(model, task, level, **self.check(str(level), options).options)
        for what, names, scores in (
            ("node", result.nodes, result.per_prompt),
            ("edge", result.edges, result.edges_per_prompt),
        ):
            if scores is None:
                continue
            finite = np.isfinite(scores).all(1)
            if what == "node":
                finite |= np.isin(names, result.unmeasured)
            if not finite.all():
                at = int(np.flatnonzero(~finite)[0])
                raise NonFiniteError(f"{self.name}: the score of {what} {names[at]} is not finite")
        return result


def discovery(*, levels: tuple[Level, ...]) -> Callable[[Callable], Discovery]:
    """Declare a method: a function of model, `ContrastTask` and level that returns `Found`.

    Keyword-only parameters are its options, its docstring is its help, and its file has its name. A
    slow method reports its progress and resumes after an interruption through
    `interp.circuits.steps`. The first of its levels is the default.
    """

    def wrap(function: Callable) -> Discovery:
        if not levels or not set(levels) <= set(LEVELS):
            raise OptionError(f"levels={levels!r} is not one or both of {', '.join(LEVELS)}")
        return Discovery.declare(function, levels=levels)

    return wrap


def declared_circuit_method(method: Any, name: str | None = None) -> Discovery:
    """Return an object as a circuit method.

    Args:
        method: any object, such as one from a user module.
        name: the name by which it was asked for, for the message.

    Raises:
        OptionError: The object is not a declared circuit method.
    """
    if isinstance(method, Discovery):
        return method
    raise OptionError(
        f"{name or repr(method)} is not a circuit method; give a name such as"
        f" 'exact_patching' or a function declared with @discovery"
    )
