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
    from interp.profiles.judged_lists import JudgedList
    from interp.profiles.reading import CorpusWords


@dataclass(frozen=True, eq=False)
class RowModel:
    """Parameters of position and of the rules of every head, means over both parts of the text.

    Args:
        rules: names of the rules.
        position: parameters of the features of positions, heads in the order of the profile.
        parameters: of the rules, on top of position.
        names: words of the corpus that are names.
        frequent: ids of its most frequent tokens.
        common: ids of its tokens that are not rare.
    """

    rules: tuple[str, ...]
    position: Float[np.ndarray, "head feature"]
    parameters: Float[np.ndarray, "head rule"]
    names: tuple[str, ...]
    frequent: Int[np.ndarray, " token"]
    common: Int[np.ndarray, " token"]


def row_model_of(
    fitted: Sequence[Description],
    heads: Sequence[int],
    rules: Sequence[str],
    corpus: CorpusWords,
) -> RowModel:
    """Return the mean of the descriptions of both parts."""
    position, parameters = (
        np.stack([getattr(one, name).numpy()[list(heads)] for one in fitted]).mean(0)
        for name in ("position", "rules")
    )
    frequent, common = (np.array(x, np.int32) for x in (corpus.frequent, corpus.common))
    return RowModel(tuple(rules), position, parameters, corpus.names, frequent, common)


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


_DESCRIBED = ("stack", "layer", "head", "name", "status", "entries")
_ROW = ("stack", "layer", "head", "metric", "score", "low", "high", "null", "n", "unit")


@dataclass(frozen=True, eq=False, repr=False)
class Profile(Result):
    """Descriptions of every head on a corpus, judged on documents that did not fit them.

    Args:
        rows: a number per head and metric, with its interval over documents.
        quantiles: of the bootstrap behind each row, at the `PROBABILITIES` of
            `interp.profiles.judgement`.
        descriptions: of every head: status (its grade), the entries of its list, lines on what it
            does at particular queries, and the numbers of its sentence, which is made of them;
            where the model predicts tokens, its effect on the loss and what it writes.
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
        """Return status, sentence and entries of one head.

        Raises:
            UnknownName: the profile has no such head.
        """
        by_name = {row["name"]: row for row in self.descriptions}
        if str(head) not in by_name:
            raise UnknownName("head of this profile", str(head), by_name)
        return by_name[str(head)]

    def about(self, head: str | Head, *, n_examples: int = 2, full: bool = True) -> str:
        """Return one screen of text on a head: the sentence, shares, entries, effects, examples.

        Args:
            head: name of the head, such as L5H4.
            n_examples: examples of the strongest and of the most surprising queries, each.
            full: with every number; else the sentence and the examples alone.

        Raises:
            UnknownName: the profile has no such head.
        """
        return drawn("about", self, str(head), examples=n_examples, full=full)

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
        names = [
            "pattern",
            *(f"explained_{x}" for x in ("offset", "position", "list", "rules", "tokens")),
        ]
        every = pd.DataFrame(wide.reindex(columns=names))
        return pd.DataFrame(every.groupby(level=["stack", "layer"], sort=False).mean())

    def counts(self) -> dict[str, int]:
        """Return the number of heads of each grade: described, in part, not described.

        Heads that attend evenly, and heads on the sink alone, are counted where there are any.
        """
        from interp.profiles.judged_lists import EVEN, GRADES, SINK

        status = [row["status"] for row in self.descriptions]
        every = {name: status.count(name) for name in (*GRADES, EVEN, SINK)}
        return {name: n for name, n in every.items() if n or name in GRADES}

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {name}" for name, n in self.counts().items())
        corpus = self.provenance.get("corpus", "")
        return f"Profile of {len(self.descriptions)} heads on {corpus}: {counts}"


def head_name(stack: str, layer: int, head: int, many: bool) -> str:
    """Return the name of a head, with its stack where a model has several."""
    return f"{stack} L{layer}H{head}" if many else f"L{layer}H{head}"


def number_rows(
    where: Mapping[str, Any], numbers: Mapping[str, Any], described: JudgedList, n: int
) -> tuple[list[dict[str, Any]], list[tuple[float, ...]]]:
    """Return the long rows of one head, and the quantiles behind each."""
    nan = float("nan")
    every = {**numbers, **described.numbers}
    nulls = {
        "explained_rules": every["control_swapped_document"].value,
        "explained_list": getattr(every.get("control_list_swapped_document"), "value", nan),
    }
    rows = [
        (
            name,
            one,
            nulls.get(name, nan),
            n if name in numbers else described.n,
            UNITS.get(name, EXPLAINED),
        )
        for name, one in every.items()
    ]
    rows += [
        (f"entry:{x.name}", x.share, x.position, described.n, OFF_SINK) for x in described.entries
    ]
    rows += [
        (f"line:{x.name}", x.share, x.position, x.n, f"{OFF_SINK} there") for x in described.lines
    ]
    return _rows_of(where, rows)


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
