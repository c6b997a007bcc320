"""Decorators that declare a metric of heads once, with its call, command, options and help.

Five declarations, one per way a head can be scored:

`@detector`    one line that says which keys an ideal head attends to; the score is the mass there.
`@statistic`   names a reduction of the attention pattern, averaged over query rows.
`@measurement` a function of one layer's queries, keys, values, patterns and outputs, per prompt.
`@weights`     a function of the weights alone.
`@experiment`  a function that makes its own prompts, runs the model and scores every head.

See `interp.core.declaration` for names, options and help. This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from interp.core.declaration import Bound, Declaration
from interp.core.errors import OptionError
from interp.core.order import End, signed
from interp.core.protocols import Progress
from interp.core.user_function import PREDICATE, digest, predicate_inputs
from interp.heads.trials import Lab, Trials

if TYPE_CHECKING:
    from torch import Tensor

    from interp.core.table import HeadTable
    from interp.heads.layer import LayerCall
    from interp.model.calls.sites import Site
    from interp.model.model import Model
    from interp_kernels.reductions import Reduction

AnalysisKind = Literal["detector", "statistic", "measurement", "weights", "experiment"]
Null = Literal["auto", "shuffled-tokens", "random-init", "none"]
NULLS = ("auto", "shuffled-tokens", "random-init", "none")
Sequences = Literal["one", "two", "any"]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Analysis(Declaration):
    """A declared metric; calling it scores every head of a model."""

    kind: AnalysisKind
    unit: str
    low: float | None
    high: float | None
    chance: str
    # of weights: see `interp.model.locate.weights.why_unreadable`; of experiments: see `experiment`
    requires: tuple[str, ...] = ()
    # task of the causal check (see `interp.circuits.head_tasks`), or "none: reason"
    task: str = ""
    scorer: ClassVar[Callable[..., HeadTable]]  # `interp.score`, set by `interp.heads`

    # of detectors: whether query and key are positions of one sequence, of two, or of either
    sequences: Sequences = "one"
    # derived from the range: both ends of a signed range, otherwise the high one
    end: End | None = None

    def __post_init__(self) -> None:
        if self.kind != "detector":
            return
        reads = "tokens" in predicate_inputs(self.function, self.name)
        if self.sequences not in ("one", "two", "any"):
            raise OptionError(
                f"{self.name}: sequences={self.sequences!r} is not known; give 'one', 'two' or "
                "'any'"
            )
        if reads and self.sequences != "one":
            raise OptionError(
                f"{self.name}: a detector for sequences={self.sequences!r} cannot read tokens, "
                "since queries and keys have different ones; give (query, key)"
            )

    @cached_property
    def shown_end(self) -> End:
        """End of the scale at which heads are listed."""
        return self.end or ("both" if signed(self.low, self.high) else "high")

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Inputs of a detector besides query and key, in order: "tokens", "segments"."""
        return predicate_inputs(self.function, self.name) if self.kind == "detector" else ()

    @property
    def reads_tokens(self) -> bool:
        """True if the targets depend on the tokens, not on positions alone."""
        return "tokens" in self.inputs

    @property
    def reads_segments(self) -> bool:
        """True if the targets depend on the segments of the prompt, such as its images."""
        return "segments" in self.inputs

    @property
    def names_segments(self) -> bool:
        """True if its targets, or the rows and keys that it measures, are those of segments."""
        return self.reads_segments or "segments" in self.requires

    @property
    def default_null(self) -> Null:
        """Null of the metric: shuffled tokens, or random weights if it does not read tokens."""
        return "shuffled-tokens" if self.reads_tokens else "random-init"

    @cached_property
    def _source(self) -> str:
        from interp.model.source_code import code_of

        return code_of([self.function])

    @property
    def code(self) -> str:
        """Identity of the code; of a user-supplied function also of the values that it uses."""
        return self._source if self._registered else f"{self._source} {digest(self.function)}"

    def __call__(
        self,
        model: Model,
        prompts: Any = None,
        *,
        null: Null = "auto",
        seed: int = 0,
        batch_size: int = 16,
        **options: Any,
    ) -> HeadTable:
        """Score every head of a model; see `interp.score` for prompts, null and seed."""
        return type(self).scorer(
            model, [self.bind(**options)], prompts, null=null, seed=seed, batch_size=batch_size
        )

    def predicate(
        self, query: Any, key: Any, tokens: Any = None, segments: Any = None, **options: Any
    ) -> Any:
        """Return the (query, key) pairs to which an ideal head of a detector attends.

        The token at a position outside of the prompt, such as `key + 1` of the last key, equals no
        other.

        Raises:
            OptionError: the detector names segments, and none are given.
        """
        if self.reads_segments and segments is None:
            raise OptionError(
                f"{self.name} names segments of the prompt, which are not known here; it is scored "
                "by interp.score, or choose a detector of positions and tokens"
            )
        from interp_kernels.prompt_ids import prompt_ids

        known = {"tokens": prompt_ids(tokens), "segments": segments}
        arguments = (known[name] for name in self.inputs)
        return self.apply(query, key, *arguments, **self.bind(**options).options)


class BoundAnalysis(Bound[Analysis]):
    """Metric with its options chosen; `label` is its name in tables."""

    @property
    def analysis(self) -> Analysis:
        """The metric."""
        return self.declaration

    def reductions(self) -> list[Reduction]:
        """Return the reductions of a pattern: the values, then the number of targets per row."""
        from interp_kernels.reductions import Mass, Targets

        if self.analysis.kind == "statistic":
            return [self.analysis.apply(**self.options)]
        if self.analysis.kind != "detector":
            raise OptionError(
                f"{self.label} is a score from {self.analysis.kind}; it does not use attention "
                f"patterns"
            )

        def predicate(query: Any, key: Any, tokens: Any = None, segments: Any = None) -> Any:
            return self.analysis.predicate(query, key, tokens, segments, **self.options)

        return [Mass(self.label, predicate), Targets(f"{self.label} rows", predicate)]

    def identity(self) -> dict[str, Any]:
        """Return everything about the metric that changes its numbers, as plain data."""
        options = {name: repr(value) for name, value in self.options.items()}
        return {"metric": self.label, "options": options, "code": self.analysis.code}

    def patterned(self) -> bool:
        """Return True if it is scored on given prompts."""
        return self.analysis.kind in ("detector", "statistic", "measurement")

    def measured(self, layer: LayerCall) -> Tensor:
        """Return a measure's values for one layer, `[prompt, head]`."""
        return self.analysis.apply(layer, **self.options)

    def experiment(
        self, model: Model, seed: int, progress: Progress, *, notes: bool = True
    ) -> Trials:
        """Run an experiment on the softmax layers and return every head's score in every trial."""
        from interp.model.views import softmax_view

        lab = Lab(seed, progress, notes)
        return self.analysis.apply(softmax_view(model), lab, **self.options)

    def settled(self, options: Mapping[str, Any]) -> BoundAnalysis:
        """Return this metric with the options that an experiment chose in place of "auto"."""
        return self.analysis.bind(**(dict(self.options) | dict(options)))

    def from_weights(self, model: Model) -> dict[Site, Tensor]:
        """Return the scores of every head of softmax layers, `[head]` per attention."""
        from interp.model.views import softmax_view

        return self.analysis.apply(softmax_view(model), **self.options)


Analysis.bound = BoundAnalysis


def _declare(kind: AnalysisKind, function: Callable | None, name: str | None, **about: Any) -> Any:
    def wrap(function: Callable) -> Analysis:
        return Analysis.declare(function, name, kind=kind, **about)

    return wrap if function is None else wrap(function)


def detector(
    function: Callable | None = None,
    *,
    name: str | None = None,
    chance: str = "mass of the null",
    task: str = "",
    sequences: Sequences = "one",
) -> Any:
    """Declare a kind of head by the positions to which an ideal one attends.

    The function receives broadcasting index arrays `query` and `key`, positions of one prompt
    without its padding, and, if it has a third parameter, the prompt's `tokens`. A parameter named
    `segments` receives what each position stands for, by the names of `interp.model.segments`:
    `segments[key] == "image"`, `segments[query] != "special"`. It returns a
    boolean mask of the targets and may use elementwise operations only. Score = mean over the query
    rows that have a target of the attention mass on it, averaged over prompts: 1 for an ideal head
    on any prompt.

    Args:
        function: predicate of `(query, key)`, and of `tokens`, `segments` or both.
        name: name of the metric; by default the function's name. A lambda is called `lambda_`
            followed by a hash of its code and of the values it uses.
        chance: text that gives the expected score by chance.
        task: see `experiment`.
        sequences: "one" if query and key must be positions of one sequence, as where they are
            compared; cross attention is then left out. "two" scores cross attention alone, where
            the query is a position of the decoder's sequence and the key one of the encoder's;
            "any" scores both kinds. Only "one" may read tokens; the others name the sequence of a
            segment: `segments.queries[query]`, `segments.keys[key]`.

    Raises:
        OptionError: the function has other parameters, or its name is not a valid metric name.
    """
    about = {"unit": "attention mass", "low": 0.0, "high": 1.0, "chance": chance, "task": task}
    return _declare("detector", function, name, **about, sequences=sequences)


def statistic(
    *,
    unit: str,
    low: float | None = 0.0,
    high: float | None = None,
    end: End | None = None,
    task: str = "",
    name: str | None = None,
) -> Any:
    """Declare a statistic of attention rows; the function returns the reduction to compute.

    Score = mean over query rows, averaged over prompts. For `end` and `task` see `experiment`.
    """
    about = {"unit": unit, "low": low, "high": high, "end": end, "task": task}
    about |= {"chance": "value of the null"}
    return _declare("statistic", None, name, **about)


def measurement(
    *,
    unit: str,
    low: float | None = None,
    high: float | None = None,
    requires: tuple[str, ...] = (),
    chance: str = "value of the null",
    end: End | None = None,
    task: str = "",
    name: str | None = None,
) -> Any:
    """Declare a score of one layer's attention call: `function(layer, *, options)`.

    The function receives an `interp.heads.layer.LayerCall`, whose prompts have equal lengths and no
    padding, and returns `[prompt, head]`, NaN where a prompt has no information. Keyword-only
    parameters are options.

    Args:
        unit: unit of the score.
        low: lower end of the score's range; None if it is unbounded.
        high: upper end of the score's range; None if it is unbounded.
        requires: properties that an attention must have: "qk" (scores from one product of queries
            and keys), "self" (queries and keys are the same tokens), "cross" (they are tokens of
            two sequences), "heads" (several heads),
            "previous" (an attention of the same stack and size before it), "ov" (an output matrix).
        chance: text that gives the expected score of an unrelated head.
        end: see `experiment`.
        task: see `experiment`.
        name: name of the metric; by default the function's name.
    """
    about = {"unit": unit, "low": low, "high": high, "requires": requires, "chance": chance}
    return _declare("measurement", None, name, **about, end=end, task=task)


def weights(
    *,
    unit: str,
    low: float | None = None,
    high: float | None = None,
    requires: tuple[str, ...] = (),
    end: End | None = None,
    task: str = "",
    name: str | None = None,
) -> Any:
    """Declare a score from weights alone: a function of the model that returns `{site: [head]}`."""
    about = {"unit": unit, "low": low, "high": high, "requires": requires, "end": end}
    return _declare("weights", None, name, **about, task=task, chance="value of random weights")


def experiment(
    *,
    unit: str,
    low: float | None = None,
    high: float | None = None,
    requires: tuple[str, ...] = (),
    chance: str = "value of the null",
    end: End | None = None,
    task: str = "",
    options: type | None = None,
    name: str | None = None,
) -> Any:
    """Declare a score from an experiment: `function(model, lab, *, options) -> Trials`.

    For kinds of head that appear only on specially constructed prompts or under an intervention.
    Keyword-only parameters are options; all randomness comes from `lab.seed`.

    Args:
        unit: unit of the score.
        low: lower end of the score's range; None if it is unbounded.
        high: upper end of the score's range; None if it is unbounded.
        requires: properties that a model must have: "tokens" as input, "causal" attention, a
            "tokenizer".
        chance: text that gives the expected score of an unrelated head.
        end: the end of the scale at which heads are listed, "high", "low" or "both"; by default
            both of a range with scores of both signs, else the high one.
        task: the task on which the causal check of `interp.confirm` measures the ablation of its
            heads (see `interp.circuits.head_tasks`), or "none: " and the reason.
        options: a dataclass of options that experiments share; the function receives an object of
            it after `lab`, and the entries of its docstring that it does not state itself.
        name: name of the metric; by default the function's name.
    """
    about = {"unit": unit, "low": low, "high": high, "requires": requires, "chance": chance}
    return _declare("experiment", None, name, **about, end=end, task=task, options=options)


def declared_metric(metric: Any, name: str | None = None) -> Analysis:
    """Return the analysis for a metric given as an object or as a detector function.

    Raises:
        OptionError: it is neither of the two.
    """
    if isinstance(metric, Analysis):
        return metric
    if callable(metric) and not isinstance(metric, type):
        return detector(metric, name=name)
    raise OptionError(
        f"{metric!r} is not a metric; give a name such as 'induction', a declared analysis, or a"
        f" function of {PREDICATE}"
    )


Metric = str | Analysis | BoundAnalysis | Callable[..., Any]
"""A name with its options (`"local_window:width=8"`), an analysis, or a detector's function."""


def bound(metric: Metric) -> BoundAnalysis:
    """Return a metric with its options, from any way of naming it."""
    from interp.core.registry import METRICS

    if isinstance(metric, str):
        return METRICS.parse(metric)
    return metric if isinstance(metric, BoundAnalysis) else declared_metric(metric).bind()
