"""Declare an attribution method once; the call, the command and its help follow from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from interp.core.declaration import Option, options_of
from interp.core.errors import NonFiniteError, OptionError, UnknownName
from interp.core.user_function import require_registrable

if TYPE_CHECKING:
    from interp.attribution.example import Example
    from interp.attribution.result import Attribution
    from interp.attribution.target import Target

Array = np.ndarray
Needs = Literal["nothing", "patterns", "forward", "gradients"]
NEEDS = ("nothing", "patterns", "forward", "gradients")


@dataclass(frozen=True, eq=False)
class Scores:
    """What a method returns.

    Args:
        scores: one per source token.
        matrix: one row per output position, where the method has them.
        total: what the scores should sum to, where the method promises completeness.
        notes: what the reader must know, such as a saturated share.
    """

    scores: Float[Array, " source"]
    matrix: Float[Array, "output source"] | None = None
    total: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Method:
    """A declared method; calling it explains one input of a model."""

    function: Callable[..., Scores]
    unit: str
    signed: bool
    needs: Needs
    options: Mapping[str, Option]

    @property
    def name(self) -> str:
        """Function name, file name and command name."""
        return self.function.__name__

    @property
    def doc(self) -> str:
        """The docstring, dedented."""
        return inspect.getdoc(self.function) or ""

    def __call__(
        self,
        model: Any,
        prompt: Any,
        target: Target | str | None = None,
        *,
        position: int = -1,
        **options: Any,
    ) -> Attribution:
        """Explain one input; see `interp.attribution.Example` for prompt and target."""
        from interp.attribution.example import Example
        from interp.model.given import one_model

        model = one_model(model)
        return self.of(Example(model, prompt, target, position), **options)

    def of(self, example: Example, **options: Any) -> Attribution:
        """Explain an example, which keeps what methods share.

        Raises:
            UnknownName: an option the method does not have.
            NonFiniteError: a score is NaN or infinite.
        """
        from interp.attribution.result import Attribution

        for name in options:
            if name not in self.options:
                raise UnknownName(f"option of {self.name}", name, self.options or ["(none)"])
        # provenance is written as JSON, and arrays do not compare with a default
        given = {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in options.items()}
        values = {name: option.default for name, option in self.options.items()} | given
        found = self.function(example, **values)
        scores = np.asarray(found.scores, dtype=np.float64)
        assert scores.shape == (len(example),), f"{self.name} gave scores of shape {scores.shape}"
        if not np.isfinite(scores).all():
            at = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise NonFiniteError(
                f"{self.name}: the score of token {at} ({example.tokens[at]!r}) is {scores[at]}; "
                "activations or gradients overflow"
            )
        changed = {n: v for n, v in values.items() if v != self.options[n].default}
        told = ",".join(f"{n}={v}" for n, v in sorted(changed.items()))
        return Attribution.of(
            self, example, f"{self.name}:{told}" if told else self.name, values, found, scores
        )

    def __repr__(self) -> str:
        return f"<attribution {self.name}: {self.doc.partition(chr(10))[0]}>"


def attribution(*, unit: str, signed: bool, needs: Needs) -> Callable[[Callable], Method]:
    """Declare a method: a function of an `Example` that returns `Scores`.

    Keyword-only parameters are its options, its docstring is its help, its file has its name.

    Args:
        unit: of the scores; "target" where they are parts of the target's number.
        signed: whether a score below zero means that the token speaks against the target.
        needs: the most it asks of the model: nothing, patterns, other forward passes, gradients.
    """

    def wrap(function: Callable) -> Method:
        require_registrable(function)
        assert needs in NEEDS
        return Method(function, unit, signed, needs, options_of(function))

    return wrap


def attribute(
    model: Any,
    prompt: Any,
    method: str | Method,
    target: Target | str | None = None,
    *,
    position: int = -1,
    **options: Any,
) -> Attribution:
    """Explain a number of the model by the tokens of its input.

    Args:
        model: a loaded model, or what `load` takes.
        method: a name of the room `interp.attribution.methods`, or a declared method.
        target: the number; the model's own first choice unless given.

    Raises:
        UnknownName: no such method or option.
        OptionError, PromptError: what does not fit the model.
    """
    if isinstance(method, str):
        from interp.core.registry import method as find

        method = find(method)
    if not isinstance(method, Method):
        raise OptionError(f"{method!r} is no attribution method")
    return method(model, prompt, target, position=position, **options)
