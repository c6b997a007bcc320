"""Profile of a model's heads on a corpus: sentences, shares with intervals, examples."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import UnknownName
from interp.core.presenter import drawn, present
from interp.core.result import Result
from interp.profiles.behaviours import Behaviours
from interp.profiles.sentence import sentence_of

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Float, Int

    from interp.core.head import Head
    from interp.profiles.explain import Description


@dataclass(frozen=True, eq=False)
class RowModel:
    """Parameters of position and of the rules of every head, means over both parts of the text.

    Args:
        rules: names of the rules.
        position: parameters of the features of positions, heads in the order of the profile.
        parameters: of the rules, on top of position.
        tokens: ids of the tokens of the corpus.
        counts: how often each occurs, by which tokens are rare or frequent.
    """

    rules: tuple[str, ...]
    position: Float[np.ndarray, "head feature"]
    parameters: Float[np.ndarray, "head rule"]
    tokens: Int[np.ndarray, " token"]
    counts: Int[np.ndarray, " token"]


def row_model_of(
    fitted: Sequence[Description],
    heads: Sequence[int],
    rules: Sequence[str],
    corpus: Int[np.ndarray, " token"],
) -> RowModel:
    """Return the mean of the descriptions of both parts."""
    tokens, counts = np.unique(corpus, return_counts=True)
    position, parameters = (
        np.stack([getattr(one, name).numpy()[list(heads)] for one in fitted]).mean(0)
        for name in ("position", "rules")
    )
    return RowModel(
        tuple(rules), position, parameters, tokens.astype(np.int32), counts.astype(np.int32)
    )


OFF_SINK, EXPLAINED = "share of attention off the sink", "share of the pattern explained"
UNITS = {
    "off_sink": "share of attention",
    "entropy": "nats",
    "distance": "tokens",
    "largest_weight": OFF_SINK,
    "pattern": "nats per query",
    "uncovered": OFF_SINK,
    "loss_without_estimate": "nats per token",
    "loss_without": "nats per token",
    "ablation_divergence": "nats per query",
    "ablation_divergence_estimate": "nats per token",
    "causal_position": (_CAUSAL := "share of the head's effect on the predictions"),
    "causal_rules": _CAUSAL,
    "causal_tokens": _CAUSAL,
    "control_causal_swapped_document": _CAUSAL,
    "direct_effect": "nats per token",
    "written_size": "share of the norm of the stream",
    "copies": "nats of logit",
    "query_dimensions": (_DIMENSIONS := "dimensions that hold 90 % of the variance"),
    "key_dimensions": _DIMENSIONS,
    "value_dimensions": _DIMENSIONS,
    "output_dimensions": _DIMENSIONS,
}
"""Units of the metrics that are not shares of the pattern (of its KL from the uniform row)."""


_DESCRIBED = ("stack", "layer", "head", "name", "status", "labels", "avoided")
_ROW = ("stack", "layer", "head", "metric", "score", "low", "high", "null", "n", "unit")


@dataclass(frozen=True, eq=False, repr=False)
class Profile(Result):
    """Descriptions of every head on a corpus, judged on documents that did not fit them.

    Args:
        rows: a number per head and metric, with its interval over documents.
        quantiles: of the bootstrap behind each row, at the `PROBABILITIES` of
            `interp.profiles.judgement`.
        descriptions: of every head: status, labels and the numbers of its sentence, which is made
            of them; where the model predicts tokens,
            its effect on the loss and what it writes.
        examples: queries with their keys and context, by head and kind.
        provenance: model, corpus, rules and settings.
        behaviours: shares of every head with the bootstrap draws by which profiles are compared, in
            the order of `descriptions`.
        row_model: the fitted rows of every head, which predict its attention on other text.
        texts: token ids of the texts that the model wrote itself, if these are the corpus.
    """

    rows: tuple[Mapping[str, Any], ...]
    quantiles: Float[np.ndarray, "row probability"]
    descriptions: tuple[Mapping[str, Any], ...]
    examples: tuple[Mapping[str, Any], ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    behaviours: Behaviours | None = None
    row_model: RowModel | None = None
    texts: tuple[Int[np.ndarray, " token"], ...] = ()
    per_prompt = None
    why_no_per_prompt = (
        "a share is a ratio of sums over documents, so it is not a mean of values of documents; its"
        " interval is a bootstrap over documents"
    )
    _units = ("stack", "layer", "head")
    _per_row = ("rows", "quantiles")
    _holds = (Behaviours, RowModel)

    def __post_init__(self) -> None:
        for kind, every, needed in (
            ("description", self.descriptions, _DESCRIBED),
            ("row", self.rows, _ROW),
            ("example", self.examples, ("name", "kind")),
        ):
            for one in every:
                if missing := [name for name in needed if name not in one]:
                    raise ValueError(f"a {kind} of a head has no {', '.join(missing)}")
        descriptions = [{**one, "sentence": sentence_of(one)} for one in self.descriptions]
        object.__setattr__(self, "descriptions", tuple(descriptions))

    def _stored(self) -> Profile:
        plain = copy.copy(self)
        without = [{k: x for k, x in d.items() if k != "sentence"} for d in self.descriptions]
        object.__setattr__(plain, "descriptions", tuple(without))
        return plain

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame([*self.rows])

    def bounds(self, level: float = 0.95) -> np.ndarray:
        """Return the bootstrap interval of each row over documents.

        Between the stored quantiles it is interpolated on the scale of a normal distribution; an
        interval beyond the outermost ones (99.8 %) is that of these.

        Raises:
            OptionError: the level does not lie between 0 and 1.
        """
        from interp.core.statistics import interval_between
        from interp.profiles.judgement import PROBABILITIES

        return interval_between(self.quantiles, PROBABILITIES, level)

    def description(self, head: str | Head) -> Mapping[str, Any]:
        """Return status, sentence and labels of one head.

        Raises:
            UnknownName: the profile has no such head.
        """
        by_name = {row["name"]: row for row in self.descriptions}
        if str(head) not in by_name:
            raise UnknownName("head of this profile", str(head), by_name)
        return by_name[str(head)]

    def about(self, head: str | Head, *, n_examples: int = 2) -> str:
        """Return one screen of text on a head: the sentence, shares, rules, effects, examples.

        Args:
            head: name of the head, such as L5H4.
            n_examples: examples of the strongest and of the most surprising queries, each.

        Raises:
            UnknownName: the profile has no such head.
        """
        return drawn("about", self, str(head), examples=n_examples)

    def examples_of(self, head: str | Head, kind: str | None = None) -> list[Mapping[str, Any]]:
        """Return the examples of one head, of one kind ("strongest", "uniform", "surprise") or all.

        Raises:
            UnknownName: the profile has no such head, or there is no such kind.
        """
        name = self.description(head)["name"]
        from interp.profiles.examples import KINDS

        if kind is not None and kind not in KINDS:
            raise UnknownName("kind of example", kind, KINDS)
        mine = [one for one in self.examples if one["name"] == name]
        return [one for one in mine if kind in (None, one["kind"])]

    def explained(self) -> pd.DataFrame:
        """Return the mean share of the pattern that each rung explains, by layer.

        Heads count equally; heads without attention off the sink do not count. `pattern` is what
        the even row leaves to explain, in nats per query.
        """
        import pandas as pd

        wide = self.to_pandas().pivot_table(
            index=["stack", "layer", "head"], columns="metric", values="score", sort=False
        )
        names = ["pattern", *(f"explained_{x}" for x in ("offset", "position", "rules", "tokens"))]
        every = pd.DataFrame(wide.reindex(columns=names))
        return pd.DataFrame(every.groupby(level=["stack", "layer"], sort=False).mean())

    def counts(self) -> dict[str, int]:
        """Return the number of heads of each status: rules, position, unclear."""
        status = [row["status"] for row in self.descriptions]
        return {name: status.count(name) for name in ("rules", "position", "unclear")}

    def __repr__(self) -> str:
        counts = self.counts()
        return (
            f"Profile of {len(self.descriptions)} heads on {self.provenance.get('corpus', '')}: "
            f"{counts['rules']} by rules beyond position, {counts['position']} by position, "
            f"{counts['unclear']} unclear"
        )


def head_name(stack: str, layer: int, head: int, many: bool) -> str:
    """Return the name of a head, with its stack where a model has several."""
    return f"{stack} L{layer}H{head}" if many else f"L{layer}H{head}"


def number_rows(
    where: Mapping[str, Any], numbers: Mapping[str, Any], labels: Sequence[Any], n: int
) -> tuple[list[dict[str, Any]], list[tuple[float, ...]]]:
    """Return the long rows of one head, and the quantiles behind each."""
    nan = float("nan")
    swapped = numbers["control_swapped_document"].value
    every = [
        (name, one, swapped if name == "explained_rules" else nan, UNITS.get(name, EXPLAINED))
        for name, one in numbers.items()
    ]
    every += [(f"rule:{label.rule}", label.share, label.position, OFF_SINK) for label in labels]
    return _rows_of(where, [(name, one, null, n, unit) for name, one, null, unit in every])


def effect_rows(
    where: Mapping[str, Any], numbers: Mapping[str, tuple[Any, float, int]]
) -> tuple[list[dict[str, Any]], list[tuple[float, ...]]]:
    """Return the long rows of the effects of one head, and the quantiles behind each."""
    return _rows_of(
        where,
        [
            (name, one, null, n, UNITS[name.partition(":")[0]])
            for name, (one, null, n) in numbers.items()
        ],
    )


def _rows_of(
    where: Mapping[str, Any], every: Sequence[tuple[str, Any, float, int, str]]
) -> tuple[list[dict[str, Any]], list[tuple[float, ...]]]:
    rows = [
        {
            **where,
            "metric": name,
            "score": one.value,
            "low": one.low,
            "high": one.high,
            "null": null,
            "n": n,
            "unit": unit,
        }
        for name, one, null, n, unit in every
    ]
    return rows, [one.quantiles for _, one, *_ in every]


present(
    Profile,
    about="interp.report.printed.profile:head_text",
    page="interp.report.atlas.single:profile_page",
    text="interp.report.printed.profile:profile_text",
)
