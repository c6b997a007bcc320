"""Parts of the atlas on several models: differences, matches, and scores over checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.core.ties import ordered, ordered_by, ranked
from interp.draw.parts import (
    FoundPart,
    frame_rows,
    made_of,
    plain_value,
    shorter,
    stated_weights,
)
from interp.heads.special import LEVEL
from interp.profiles.behaviours import ON
from interp.report.atlas.document import (
    Comparison,
    Curves,
    Difference,
    Line,
    Metric,
    Model,
    Nearest,
    Place,
)
from interp.report.atlas.scores import finite
from interp.report.printed.changes import counted_changes

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.heads.between_models.matches import HeadMatches
    from interp.heads.between_models.result import ModelDifferences
    from interp.heads.checkpoints.result import Emergence

LINES = 8  # curves of heads, over all metrics
NAMED = 4


def difference_part(found: ModelDifferences) -> FoundPart:
    """Return the differences of two models as a table, the largest first."""
    frame: Any = found.to_pandas()
    order = ranked(frame, "score", absolute=True).index
    changed: Any = frame.loc[order][frame.loc[order, "p_holm"] < LEVEL]
    labels = [
        f"L{layer}H{head}" for layer, head in zip(changed["layer"], changed["head"], strict=True)
    ]
    lines = [
        f"{label} {row['metric']} {row['score']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
        for label, row in zip(labels[:NAMED], changed.to_dict("records"), strict=False)
    ]
    name = _name(found)
    text = (
        found.answer.sentence
        if found.answer is not None
        else (
            f"{len(changed)} of {len(frame)} scores differ (p below {LEVEL:g}, corrected by Holm): "
            f"{'; '.join(lines)}{' and others' if len(changed) > len(lines) else ''}."
            if len(changed)
            else f"No score differs significantly among {len(frame)} (p corrected by Holm)."
        )
    )
    part: Any = {
        "id": "",
        "kind": "comparison",
        "title": f"What changed: {name}",
        "text": text,
        "heads": list(dict.fromkeys(labels)),
        **frame_rows(frame.loc[order], ("model", "null")),
        "provenance": made_of(found.provenance),
    }
    return FoundPart(part, name)


def _name(found: Any) -> str:
    return str(found.provenance.get("model") or found.provenance.get("model_id") or "two models")


def comparison_of(found: ModelDifferences, a: Model, b: Model, id: str) -> Comparison:
    """Return stored differences as columns in the order of the heads of the first model."""
    text = difference_part(found).part["text"]
    metrics = _difference_columns(found.to_pandas(), a)
    return {"id": id, "a": a["id"], "b": b["id"], "text": text, "metrics": metrics}


def profile_comparison(found: ResultRows, a: Model, b: Model) -> Comparison:
    """Return what changed between two profiles: a sentence per head, and columns of differences."""
    label = {_place(a, place): place["label"] for place in a["heads"]}
    order = ordered_by(found.changes, lambda one: one["largest"])
    frame: Any = found.to_pandas()
    frame = frame[frame["p"].notna()]
    sizes: Any = frame["score"].abs().where(frame["p_holm"] < LEVEL, 0)
    largest = sizes.groupby(frame["metric"], sort=False).max().sort_values(ascending=False)
    metrics = sorted(largest.index, key=lambda name: not name.startswith(ON))  # stable
    at = {name: place for place, name in enumerate(metrics)}
    frame = frame.sort_values("metric", key=lambda x: x.map(at), kind="stable")
    return {
        "id": f"{a['id']}..{b['id']}-text",
        "a": a["id"],
        "b": b["id"],
        "text": counted_changes(found),
        "metrics": _difference_columns(frame, a),
        "said": [
            (label[one["stack"], one["layer"], one["head"]], one["sentence"]) for one in order
        ],
    }


def _place(model: Model, place: Place) -> tuple[str, int, int]:
    return model["stacks"][place["stack"]]["name"], place["layer"], place["head"]


def _difference_columns(frame: Any, a: Model) -> list[Difference]:
    """Return rows of differences as columns in the order of the heads of a model."""
    at = {_place(a, p): i for i, p in enumerate(a["heads"])}
    metrics: list[Difference] = []
    groups: Any = frame.groupby("metric", sort=False)
    for metric, rows in groups:
        one: dict[str, list] = {x: [None] * len(at) for x in ("difference", "low", "high", "p")}
        for row in rows.to_dict("records"):
            place = at.get((row["stack"], int(row["layer"]), int(row["head"])))
            if place is not None:
                one["difference"][place] = finite(row["score"])
                one["low"][place], one["high"][place] = finite(row["low"]), finite(row["high"])
                one["p"][place] = finite(row["p_holm"])
        unit = str(rows["unit"].iloc[0])
        metrics.append({"metric": str(metric), "unit": unit, **one})  # type: ignore[typeddict-item]
    return metrics


def untested_comparison(a: Model, b: Model, id: str) -> Comparison | None:
    """Return the differences of the scores of two models of one shape; None for other shapes.

    They have no interval and no p, because the models were not scored on paired prompts.
    """
    if a["stacks"] != b["stacks"] or [p["label"] for p in a["heads"]] != [
        p["label"] for p in b["heads"]
    ]:
        return None
    mine, other = ({m["name"]: m for m in x["metrics"]} for x in (a, b))
    shared = [name for name in mine if name in other and mine[name]["group"] != "causal"]
    if not shared:
        return None
    none: list[float | None] = [None] * len(a["heads"])
    metrics: list[Difference] = [
        {
            "metric": name,
            "unit": mine[name]["unit"],
            "difference": [
                None if x is None or y is None else y - x
                for x, y in zip(mine[name]["score"], other[name]["score"], strict=True)
            ],
            "low": list(none),
            "high": list(none),
            "p": list(none),
        }
        for name in shared
    ]
    text = _largest(metrics, mine, [p["label"] for p in a["heads"]])
    text += (
        f"{b['name']} minus {a['name']}, score by score, without a test: the models were scored "
        "one by one. `interp compare` pairs the prompts and tests each difference."
    )
    return {"id": id, "a": a["id"], "b": b["id"], "text": text, "metrics": metrics}


def _largest(metrics: list[Difference], of: Mapping[str, Metric], labels: list[str]) -> str:
    """Name the largest difference, as a share of the range of its metric where that is known."""
    sized = []
    for one in metrics:
        low, high = of[one["metric"]]["low"], of[one["metric"]]["high"]
        width = high - low if low is not None and high is not None and high > low else None
        for label, value in zip(labels, one["difference"], strict=True):
            if value is not None:
                share = abs(value) / width if width else 0.0
                sized.append((share, abs(value), label, one["metric"], value, one["unit"]))
    if not sized:
        return ""
    *_, label, metric, value, unit = max(sized)
    return f"The largest difference is {label}, {metric} {value:+.3g} {unit}. "


def match_part(found: HeadMatches) -> FoundPart:
    """Return which heads of two models do alike."""
    frame: Any = found.to_pandas()
    name = _name(found)
    sure = frame[frame["p_bh"] < LEVEL] if "p_bh" in frame else frame.iloc[:0]
    whole = "" if found.p_all is None else f" The whole assignment: p = {shorter(found.p_all)}."
    part: Any = {
        "id": "",
        "kind": "match",
        "title": f"Heads that do alike: {name}",
        "text": f"{len(sure)} of {len(frame)} heads have a match with a p below {LEVEL:g} "
        f"(Benjamini and Hochberg), by {found.metric}.{whole}",
        "heads": [],
        **frame_rows(frame, ("model",)),
        "provenance": made_of(found.provenance),
    }
    return FoundPart(part, name)


def matched(found: HeadMatches) -> tuple[str, str, dict[str, Nearest]]:
    """Return both models, and the match of each head of the first."""
    a, _, b = _name(found).partition(" to ")
    rows: Any = found.to_pandas()
    near: dict[str, Nearest] = {
        f"L{row['layer']}H{row['head']}": {
            "model": b,
            "label": str(row["head_b"]),
            "similarity": float(row["score"]),
            "how": f"{found.metric}, {row['unit']}",
        }
        for row in rows.to_dict("records")
        if row["head_b"] and finite(row["score"]) is not None
    }
    return a, b, near


def emergence_part(found: Emergence) -> FoundPart:
    """Return scores over the checkpoints of a training run, and when they changed."""
    changes: Any = found.change_points()
    sure = changes[changes["p_holm"] < LEVEL] if len(changes) else changes
    frame: Any = found.to_pandas()
    name = _name(found)
    lines: list[Line] = []
    each = max(LINES // max(len(found.metrics), 1), 1)
    for metric in found.metrics[:LINES]:
        rows = frame[frame["metric"] == metric]
        spread = rows.groupby(["stack", "layer", "head"])["score"].agg(lambda x: x.max() - x.min())
        for stack, layer, head in spread.index[ordered(spread)][:each]:
            curve = rows[
                (rows["stack"] == stack) & (rows["layer"] == layer) & (rows["head"] == head)
            ]
            lines.append(
                {
                    "name": f"{metric} L{layer}H{head}",
                    "kind": "head",
                    "x": plain_value(curve["step"].tolist()),
                    "y": plain_value(curve["score"].tolist()),
                    "low": plain_value(curve["low"].tolist()),
                    "high": plain_value(curve["high"].tolist()),
                }
            )
    figure: Curves = {"draw": "curves", "x": "training step", "y": "score", "lines": lines}
    sentences = [
        f"{row['metric']} {_at(row)} {row['size']:+.3f}"
        for row in sure.head(NAMED).to_dict("records")
    ]
    steps = frame["step"].nunique()
    text = f"{len(sure)} changes with a p below {LEVEL:g} (Holm) over {steps} checkpoints"
    heads = list(dict.fromkeys(_at(row) for row in sure.head(LINES).to_dict("records")))
    part: Any = {
        "id": "",
        "kind": "emergence",
        "title": f"Over training: {name}",
        "text": f"{text}: {'; '.join(sentences)}." if sentences else f"{text}.",
        "heads": heads,
        **frame_rows(changes),
        "figure": figure,
        "provenance": made_of(found.provenance),
    }
    return FoundPart(part, name, stated_weights(found.provenance))


def _at(row: Any) -> str:
    return f"L{int(row['layer'])}H{int(row['head'])}"


def sides(name: str, models: Sequence[str]) -> tuple[str, str] | None:
    """Return the first and the second model of a difference "B - A", if both are known."""
    for match in re.finditer(" - ", name):
        second, first = name[: match.start()], name[match.end() :]
        if first in models and second in models:
            return first, second
    return None
