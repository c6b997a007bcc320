"""Declaration of attribution methods, from which the call, the command and its help follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from interp.core.declaration import Bound, Declaration, split_names
from interp.core.errors import NonFiniteError, OptionError
from interp.core.registry import ATTRIBUTION_METHODS
from interp.model.precision import float64_or_less, on_its_device

if TYPE_CHECKING:
    from interp.attribution.example import Example
    from interp.attribution.result import Attribution
    from interp.attribution.target import AnyTarget

Array = np.ndarray
Needs = Literal["nothing", "patterns", "forward", "gradients"]
NEEDS = ("nothing", "patterns", "forward", "gradients")


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores that the function of an attribution method returns.

    Args:
        scores: one score per source token.
        matrix: one row of scores per output position; None if the method has none.
        total: the number to which the scores should sum; None if the method does not promise
            completeness.
        residual_cause: why the scores may miss the total, as a phrase after "due to"; empty if
            only rounding separates them.
        notes: further facts about the computation, such as a saturated share.
    """

    scores: Float[Array, " source"]
    matrix: Float[Array, "output source"] | None = None
    total: float | None = None
    residual_cause: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttributionMethod(Declaration):
    """Declared attribution method; a call explains one input of a model."""

    kind: str = "attribution"
    unit: str
    signed: bool
    needs: Needs
    softmax_only: bool = False

    def __call__(
        self,
        model: Any,
        prompt: Any,
        target: AnyTarget | None = None,
        *,
        position: int = -1,
        **options: Any,
    ) -> Attribution:
        """Explain one input; see `interp.attribution.Example` for prompt and target."""
        from interp.attribution.example import Example
        from interp.model.model_argument import one_model

        model = one_model(model)
        return self.of(Example(model, prompt, target, position), **options)

    def of(self, example: Example, **options: Any) -> Attribution:
        """Explain an example, which caches the activations that methods share.

        Raises:
            UnknownName: the method does not have such an option.
            OptionError: an option has the wrong type, or the shape of the scores is wrong.
            NonFiniteError: a score is NaN or infinite.
        """
        return self.bind(**options).of(example)


class BoundMethod(Bound[AttributionMethod]):
    """Attribution method with chosen options; `label` is its name in results."""

    @property
    def method(self) -> AttributionMethod:
        """The declared method, without options."""
        return self.declaration

    def of(self, example: Example) -> Attribution:
        """Explain an example; see `AttributionMethod.of`."""
        from interp.attribution.result import Attribution

        name = self.method.name
        example = example.of_softmax() if self.method.softmax_only else example
        with float64_or_less(example.model.device):
            result = self.method.apply(example, **self.options)
        scores = np.asarray(result.scores, dtype=np.float64)
        if scores.shape != (len(example),):
            raise OptionError(
                f"{name} returned scores of shape {scores.shape} for {len(example)} tokens; a "
                "method must return one score per token of the example"
            )
        if not np.isfinite(scores).all():
            at = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise NonFiniteError(
                f"{name}: the score of token {at} ({example.tokens[at]!r}) is {scores[at]}: "
                "activations or gradients overflow; try float32"
            )
        return Attribution.of(self.method, example, self.label, dict(self.options), result, scores)


AttributionMethod.bound = BoundMethod


def attribution(
    *, unit: str, signed: bool, needs: Needs, softmax_only: bool = False
) -> Callable[[Callable], AttributionMethod]:
    """Declare a method: a function of an `Example` that returns `Scores`.

    Its keyword-only parameters are the options and its docstring is the help. The file has the
    name of the function.

    Args:
        unit: unit of the scores; "target" if they are parts of the target's value.
        signed: True if a negative score means evidence against the target.
        needs: the most costly need: nothing, patterns, forward (passes) or gradients.
        softmax_only: True if it reads or changes what a softmax alone has (queries, keys, scores,
            weights that give the output). In a hybrid model it then reads the softmax layers only,
            and the provenance names the others.

    Returns:
        A decorator that makes the declared method.

    Raises:
        OptionError: `needs` is unknown.
    """

    def wrap(function: Callable) -> AttributionMethod:
        if needs not in NEEDS:
            raise OptionError(f"unknown needs={needs!r}; known: {', '.join(NEEDS)}")
        return AttributionMethod.declare(
            function,
            unit=unit,
            signed=signed,
            needs=needs,
            softmax_only=softmax_only,
        )

    return wrap


def declared_attribution(method: Any, name: str | None = None) -> AttributionMethod:
    """Return the object if it is a declared attribution method.

    Args:
        method: any object, such as one from a user module.
        name: the name by which it was asked for, for the message.

    Raises:
        OptionError: it is not a declared method.
    """
    if isinstance(method, AttributionMethod):
        return method
    raise OptionError(
        f"{name or repr(method)} is not an attribution method; give a name such as"
        f" 'occlusion' or a function declared with @attribution"
    )


@on_its_device
def attribute(
    model: Any,
    prompt: Any,
    method: str | AttributionMethod,
    target: AnyTarget | None = None,
    *,
    position: int = -1,
    **options: Any,
) -> Attribution:
    """Explain a number that the model computes by the tokens of its input.

    Args:
        model: a loaded model, or what `load` accepts.
        prompt: one text, token ids, or the tensors of the model's arguments.
        method: a name that `interp list methods` lists, with its options if any
            (`"name:option=value"`), or a declared method.
        target: the number to explain; the model's own first choice by default.
        position: output position of the target, negative from the end.
        options: options of the method.

    Returns:
        A score per source token, with its provenance.

    Raises:
        UnknownName: there is no such method or option.
        OptionError, PromptError: the target, an option or the prompt does not fit the model.
    """
    declared, options = ATTRIBUTION_METHODS.given(method, options)
    return declared(model, prompt, target, position=position, **options)


def choose_methods(methods: Iterable[str | AttributionMethod | BoundMethod]) -> list[BoundMethod]:
    """Return the methods with these names; one text may hold several, separated by commas.

    The name of a group, such as `token_importance`, stands for all methods of the group.

    Args:
        methods: names with options as on the command line, declared methods, or bound methods.

    Returns:
        Each method with its options.

    Raises:
        UnknownName: there is no such method or option; the message suggests the nearest name.
        OptionError: an option has an invalid value, a method is named twice, or none is named.
    """
    chosen: list[BoundMethod] = []
    for item in methods:
        if isinstance(item, BoundMethod):
            chosen.append(item)
        elif isinstance(item, AttributionMethod):
            chosen.append(item.bind())
        else:
            names = ATTRIBUTION_METHODS.expand(split_names(item))
            chosen += [ATTRIBUTION_METHODS.parse(name) for name in names]
    labels = [c.label for c in chosen]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise OptionError(f"a method is asked for twice: {', '.join(twice)}; name each method once")
    if not chosen:
        raise OptionError(
            "no attribution method is named; name at least one (`interp list methods` lists them)"
        )
    return chosen
