"""Result of a search for dependency trees: relations, trees, baselines and provenance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from interp.core.result import Result
from interp.core.ties import ordered_by

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.core.table import HeadTable

Interval = tuple[float, float]


@dataclass(frozen=True)
class Relation:
    """Accuracy of heads in finding the head word of one relation; shares from 0 to 1.

    Args:
        n, train_n: dependents with the relation in the evaluation sentences, and in the choosing
            ones.
        head: stack and position of the head that was best on the choosing sentences.
        direction: `row` if dependents attend to their head word; `column` if it attends to them;
            `both` for the mean of the two.
        accuracy: accuracy of that head, with its 95 % interval over sentences.
        offset: the fixed distance that is right most often in the choosing sentences, and its
            accuracy. `gain` is accuracy - baseline with its interval, `p` two-sided (bootstrap) and
            corrected over all relations by Holm.
        oracle: accuracy of the best head chosen on the evaluation sentences themselves, an upper
            bound.
        ensemble: heads whose mean is best on the choosing sentences, at most four.
        either: Htut's MAX: correct if either word selects the other, for its own best head.
        random, shuffled: accuracy of the best head of a random-init model, and of the same head on
            shuffled words.
    """

    relation: str
    n: int
    train_n: int
    head: str
    direction: str
    accuracy: float
    interval: Interval
    offset: int
    baseline: float
    gain: float
    gain_interval: Interval
    p: float
    oracle: float
    oracle_head: str
    ensemble: tuple[str, ...]
    ensemble_accuracy: float
    ensemble_interval: Interval
    either: float
    either_head: str
    random: float = math.nan
    shuffled: float = math.nan


@dataclass(frozen=True)
class Trees:
    """Trees made by one method or baseline: shares of gold edges and heads, 0 to 1.

    Args:
        method: `maximum spanning tree`, `arborescence, gold root`, `arborescence, predicted root`,
            `probe`, `adjacent chain`, ...
        heads: the heads used, chosen on the choosing sentences.
        uuas: share of gold edges found, without direction. `uas` is the share of words other than
            the gold root with the right head (with a predicted root also the root itself); NaN if
            the method has no directions.
        punct: True if punctuation is included, in the trees and in the counts.
    """

    method: str
    heads: tuple[str, ...]
    direction: str
    punct: bool
    uuas: float
    uuas_interval: Interval
    uas: float
    uas_interval: Interval
    edges: int
    baseline: bool = False


@dataclass(frozen=True)
class Drawn:
    """Sentence of the report with its gold tree and a predicted one."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    predicted: tuple[tuple[int, int], ...]  # (head, dependent)
    directed: bool
    sent_id: str
    found: int  # number of gold edges among the predicted ones


@dataclass(frozen=True, eq=False)
class TreeScores(Result):
    """Relations and trees that `dependency_trees` found in one model.

    Its rows are relations: the score is the accuracy of the best head, the null that of the best
    fixed offset, and the interval is a bootstrap over sentences. `trees_to_pandas` returns the
    trees.

    Args:
        by_head: per stack a list of UUAS, `[layer][head]`, on the choosing sentences, NaN for none.
        counts: numbers of choosing and evaluation sentences, of those skipped as too long, and of
            those with words without pieces.
        notes: facts that affect the interpretation of the numbers, one line each.
    """

    model: str
    relations: tuple[Relation, ...]
    trees: tuple[Trees, ...]
    by_head: Mapping[str, Sequence[Sequence[float]]]
    drawn: tuple[Drawn, ...]
    counts: Mapping[str, int]
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "its intervals are bootstrapped over sentences, whose counts are not stored"
    _units = ("relation",)
    _per_row = ("relations",)
    _holds = (Relation, Trees, Drawn)
    _same_as = MappingProxyType({"score": "accuracy", "null": "baseline"})

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "accuracy of the best head", "unit": "share of dependents"}

    def relation(self, name: str) -> Relation:
        """Return one relation.

        Raises:
            UnknownName: the relation does not occur in both parts of the treebank.
        """
        from interp.core.errors import UnknownName

        by_name = {r.relation: r for r in self.relations}
        if name not in by_name:
            raise UnknownName("relation", name, by_name)
        return by_name[name]

    def best(self, *, punct: bool = True) -> Trees:
        """Return the trees of highest UUAS that come from attention of single heads."""
        return max(
            (t for t in self.trees if t.method == SPANNING and t.punct == punct),
            key=lambda t: t.uuas,
        )

    def _rows(self) -> pd.DataFrame:
        """Return one row per relation."""
        import pandas as pd

        rows = []
        for r in self.relations:
            row = asdict(r)
            for name in ("interval", "gain_interval", "ensemble_interval"):
                stem = name.removesuffix("interval").removesuffix("_")
                prefix = f"{stem}_" if stem else ""
                row[f"{prefix}low"], row[f"{prefix}high"] = row.pop(name)
            row["ensemble"] = " ".join(r.ensemble)
            rows.append({"model": self.model} | row)
        return pd.DataFrame(rows)

    def trees_to_pandas(self) -> pd.DataFrame:
        """Return one row per method of making trees."""
        import pandas as pd

        rows = []
        for t in self.trees:
            row = asdict(t)
            for name in ("uuas", "uas"):
                row[f"{name}_low"], row[f"{name}_high"] = row.pop(f"{name}_interval")
            rows.append({"model": self.model} | row | {"heads": " ".join(t.heads)})
        return pd.DataFrame(rows)

    def table(self) -> HeadTable:
        """Return the UUAS of every head's spanning trees on the choosing sentences."""
        from interp.core.table import HeadTable

        records = [
            {
                "model": self.model,
                "stack": stack,
                "layer": layer,
                "metric": "uuas",
                "score": list(row),
                "n": int(self.counts["train_sentences"]),
                "unit": "gold edges",
            }
            for stack, grid in self.by_head.items()
            for layer, row in enumerate(grid)
            if all(x == x for x in row)  # noqa: PLR0124  (a layer without attention has NaN)
        ]
        return HeadTable.from_records(records, {(self.model, "uuas"): self.provenance})

    def plot(self) -> go.Figure:
        """Plot the best head's accuracy per relation with its interval and the offset baseline."""
        import plotly.graph_objects as go

        from interp.draw.colours import COLOURS, GREY

        names = [r.relation for r in self.relations]
        error = {
            "type": "data",
            "symmetric": False,
            "array": [r.interval[1] - r.accuracy for r in self.relations],
            "arrayminus": [r.accuracy - r.interval[0] for r in self.relations],
        }
        figure = go.Figure()
        accuracies = [r.accuracy for r in self.relations]
        figure.add_bar(
            x=names,
            y=accuracies,
            error_y=error,
            name="best head",
            marker_color=COLOURS[0],
            hovertext=[f"{r.head} {r.direction}, n {r.n}" for r in self.relations],
        )
        base = [r.baseline for r in self.relations]
        mark = {"color": GREY, "symbol": "line-ew-open", "size": 16}
        figure.add_scatter(x=names, y=base, mode="markers", name="best fixed offset", marker=mark)
        figure.update_layout(template="plotly_white", yaxis={"range": [0, 1]})
        figure.update_yaxes(title_text="share of dependents")
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain lists and numbers, with NaN as None."""
        return _plain(
            {
                "format": _FORMAT,
                "model": self.model,
                "relations": [asdict(r) for r in self.relations],
                "trees": [asdict(t) for t in self.trees],
                "by_head": {k: [list(row) for row in grid] for k, grid in self.by_head.items()},
                "drawn": [asdict(d) for d in self.drawn],
                "counts": dict(self.counts),
                "notes": list(self.notes),
                "provenance": dict(self.provenance),
            }
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TreeScores:
        """Restore a result from the output of `to_dict`.

        Raises:
            StoreError: the data has another format, or is damaged.
        """
        from interp.core.errors import StoreError

        try:
            if values["format"] != _FORMAT:
                raise ValueError(f"its format is not {_FORMAT!r}")
            return cls(
                model=values["model"],
                relations=tuple(Relation(**_read(r)) for r in values["relations"]),
                trees=tuple(Trees(**_read(t)) for t in values["trees"]),
                by_head={k: _read({"x": g})["x"] for k, g in values["by_head"].items()},
                drawn=tuple(Drawn(**_read(d)) for d in values["drawn"]),
                counts=dict(values["counts"]),
                notes=tuple(values["notes"]),
                provenance=dict(values["provenance"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"not a result of a search for trees, or damaged: {error}") from error

    def __repr__(self) -> str:
        best = ordered_by(self.relations, lambda r: r.gain)[:3]
        text = ", ".join(
            f"{r.relation} {r.accuracy:.0%} (offset {r.baseline:.0%}) {r.head}" for r in best
        )
        spanning = [t for t in self.trees if t.method == SPANNING and t.punct]
        trees = f"UUAS {spanning[0].uuas:.3f} of {spanning[0].heads[0]}; " if spanning else ""
        return f"TreeScores({self.model}: {trees}{text})"


SPANNING = "maximum spanning tree"
_FORMAT = "interp dependency trees 1"


def _plain(x: Any) -> Any:
    if isinstance(x, Mapping):
        return {str(k): _plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_plain(v) for v in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def _read(values: Mapping[str, Any]) -> Any:
    """Convert lists to tuples, and None to NaN."""

    def back(x: Any) -> Any:
        return tuple(back(v) for v in x) if isinstance(x, list) else math.nan if x is None else x

    return {k: back(v) for k, v in values.items()}
