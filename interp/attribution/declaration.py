"""Declare an attribution method once; the call, the command and its help follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from interp.core.declaration import Bound, Declaration
from interp.core.errors import NonFiniteError, OptionError
from interp.core.registry import ATTRIBUTION_METHODS

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


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttributionMethod(Declaration):
    """A declared attribution method; calling it explains one input of a model."""

    kind: str = "attribution"
    unit: str
    signed: bool
    needs: Needs

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
            OptionError: an option of the wrong type, or scores of another shape than the input's.
            NonFiniteError: a score is NaN or infinite.
        """
        return self.bind(**options).of(example)


class BoundMethod(Bound[AttributionMethod]):
    """A method with its options chosen; `label` is its name in results."""

    @property
    def method(self) -> AttributionMethod:
        """The method."""
        return self.declaration

    def of(self, example: Example) -> Attribution:
        """Explain an example; see `Method.of`."""
        from interp.attribution.result import Attribution

        name = self.method.name
        found = self.method.function(example, **self.options)
        scores = np.asarray(found.scores, dtype=np.float64)
        if scores.shape != (len(example),):
            raise OptionError(
                f"{name} gave scores of shape {scores.shape} for {len(example)} tokens; a method "
                "returns one score per token of the example"
            )
        if not np.isfinite(scores).all():
            at = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise NonFiniteError(
                f"{name}: the score of token {at} ({example.tokens[at]!r}) is {scores[at]}; "
                "activations or gradients overflow"
            )
        return Attribution.of(self.method, example, self.label, dict(self.options), found, scores)


AttributionMethod.bound = BoundMethod


def attribution(
    *, unit: str, signed: bool, needs: Needs
) -> Callable[[Callable], AttributionMethod]:
    """Declare a method: a function of an `Example` that returns `Scores`.

    Keyword-only parameters are its options, its docstring is its help, its file has its name.

    Args:
        unit: of the scores; "target" where they are parts of the target's number.
        signed: whether a score below zero means that the token speaks against the target.
        needs: the most it asks of the model: nothing, patterns, other forward passes, gradients.
    """

    def wrap(function: Callable) -> AttributionMethod:
        if needs not in NEEDS:
            raise OptionError(f"needs={needs!r} is not one of {', '.join(NEEDS)}")
        return AttributionMethod.declare(function, unit=unit, signed=signed, needs=needs)

    return wrap


def declared_attribution(method: Any, name: str | None = None) -> AttributionMethod:
    """The method that an object is.

    Raises:
        OptionError: it is not a declared method.
    """
    if isinstance(method, AttributionMethod):
        return method
    raise OptionError(
        f"{method!r} is not an attribution method; give a name such as 'occlusion' or a function"
        " declared with @attribution"
    )


def attribute(
    model: Any,
    prompt: Any,
    method: str | AttributionMethod,
    target: Target | str | None = None,
    *,
    position: int = -1,
    **options: Any,
) -> Attribution:
    """Explain a number of the model by the tokens of its input.

    Args:
        model: a loaded model, or what `load` takes.
        method: a name that `interp methods` lists, or a declared method.
        target: the number; the model's own first choice unless given.

    Raises:
        UnknownName: no such method or option.
        OptionError, PromptError: what does not fit the model.
    """
    found = (
        ATTRIBUTION_METHODS.load(method)
        if isinstance(method, str)
        else declared_attribution(method)
    )
    return found(model, prompt, target, position=position, **options)
