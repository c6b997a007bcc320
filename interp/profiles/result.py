"""Profile of a model's heads on a corpus: sentences, shares with intervals, examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interp.core.errors import UnknownName
from interp.core.result import Result

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from interp.core.head import Head

UNITS = {
    "off_sink": "share of attention",
    "entropy": "nats",
    "distance": "tokens",
    "largest_weight": "share of attention off the sink",
    "pattern": "nats per query",
    "uncovered": "share of attention off the sink",
}
"""Units of metrics; all others are shares of the pattern (of its KL from the uniform row)."""


@dataclass(frozen=True, eq=False, repr=False)
class Profile(Result):
    """What every head does on a corpus, judged on documents that did not fit the description.

    Args:
        rows: a number per head and metric, with its interval over documents.
        descriptions: of every head: status, sentence and labels.
        examples: queries with their keys and context, by head and kind.
        provenance: model, corpus, rules and settings.
    """

    rows: tuple[Mapping[str, Any], ...]
    descriptions: tuple[Mapping[str, Any], ...]
    examples: tuple[Mapping[str, Any], ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = (
        "a share is a ratio of sums over documents, so it is not a mean of values of documents; its"
        " interval is a bootstrap over documents"
    )
    _units = ("stack", "layer", "head")
    _per_row = ("rows",)

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame([*self.rows])

    def bounds(self, level: float = 0.95) -> np.ndarray:
        """Return the stored bootstrap interval of each row; only 95 % intervals are kept.

        Raises:
            OptionError: another level is asked for.
        """
        from interp.core.errors import OptionError

        if level != 0.95:
            raise OptionError(
                f"level={level}: a profile keeps 95 % intervals; run interp.profile again for the "
                "documents behind them"
            )
        return self.to_pandas()[["low", "high"]].to_numpy(float)

    def description(self, head: str | Head) -> Mapping[str, Any]:
        """Return status, sentence and labels of one head.

        Raises:
            UnknownName: the profile has no such head.
        """
        found = {row["name"]: row for row in self.descriptions}
        if str(head) not in found:
            raise UnknownName("head of this profile", str(head), found)
        return found[str(head)]

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

        Heads count equally; heads without attention off the sink do not count. "nats" weighs them
        by what the uniform row leaves to explain.
        """
        frame = self.to_pandas()
        wide = frame.pivot_table(
            index=["stack", "layer", "head"], columns="metric", values="score", sort=False
        )
        rungs = [x for x in wide.columns if x.startswith("explained_") and "part" not in x]
        order = [f"explained_{x}" for x in ("offset", "position", "rules", "tokens")]
        found = wide[[x for x in order if x in rungs]].groupby(["stack", "layer"]).mean()
        found.insert(0, "pattern", wide["pattern"].groupby(["stack", "layer"]).mean())
        return found

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
) -> list[dict[str, Any]]:
    """Return the long rows of one head."""
    swapped = numbers["control_swapped_document"].value
    rows = []
    for name, number in numbers.items():
        unit = UNITS.get(name, "share of the pattern explained")
        null = swapped if name == "explained_rules" else float("nan")
        rows.append({"metric": name, **_ends(number), "null": null, "unit": unit})
    for label in labels:
        rows.append(
            {
                "metric": f"rule:{label.rule}",
                **_ends(label.share),
                "null": label.position,
                "unit": "share of attention off the sink",
            }
        )
    return [{**where, **row, "n": n} for row in rows]


def _ends(number: Any) -> dict[str, float]:
    return {"score": number.value, "low": number.low, "high": number.high}
